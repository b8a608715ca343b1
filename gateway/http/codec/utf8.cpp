#include <gateway/http/codec/utf8.hpp>

#include <boost/locale/utf.hpp>

namespace fencegate::http {
namespace {

/// Returns the length of the character at the beginning of a text that is not empty; 0 if it is not valid.
std::size_t character_size(std::string_view text) {
    using utf = boost::locale::utf::utf_traits<char>;
    const char* at = text.data();
    if (!boost::locale::utf::is_valid_codepoint(utf::decode(at, text.data() + text.size()))) return 0;
    return static_cast<std::size_t>(at - text.data());
}

}  // namespace

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const auto size = character_size(text);
        if (size == 0) return false;
        text.remove_prefix(size);
    }
    return true;
}

std::string replace_invalid_utf8(std::string text) {
    if (is_utf8(text)) return text;
    std::string out;
    for (std::string_view rest = text; !rest.empty();) {
        const auto size = character_size(rest);
        out += size == 0 ? std::string_view("\xEF\xBF\xBD") : rest.substr(0, size);
        rest.remove_prefix(size == 0 ? 1 : size);
    }
    return out;
}

std::string_view cut_utf8(std::string_view text, std::size_t bytes) {
    if (text.size() <= bytes) return text;
    while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0U) == 0x80U)
        --bytes;
    return text.substr(0, bytes);
}

}  // namespace fencegate::http
