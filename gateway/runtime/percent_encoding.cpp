#include <gateway/runtime/percent_encoding.hpp>

#include <boost/url/encode.hpp>
#include <boost/url/pct_string_view.hpp>
#include <boost/url/rfc/unreserved_chars.hpp>

namespace fencegate::runtime {

std::string percent_encode(std::string_view text) {
    return boost::urls::encode({text.data(), text.size()}, boost::urls::unreserved_chars);
}

std::optional<std::string> percent_decode(std::string_view text) {
    if (text.find('%') == std::string_view::npos) return std::string(text);
    const auto encoded = boost::urls::make_pct_string_view({text.data(), text.size()});
    if (!encoded) return std::nullopt;
    return encoded->decode();
}

}  // namespace fencegate::runtime
