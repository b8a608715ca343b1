#include <gateway/runtime/percent_encoding.hpp>

#include <boost/url/encode.hpp>
#include <boost/url/rfc/unreserved_chars.hpp>

namespace fencegate::runtime {

std::string percent_encode(std::string_view text) {
    return boost::urls::encode({text.data(), text.size()}, boost::urls::unreserved_chars);
}

}  // namespace fencegate::runtime
