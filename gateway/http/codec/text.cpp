#include <gateway/http/codec/text.hpp>

#include <lockcore/encoding.hpp>

namespace fencegate::http {

std::string replace_invalid_utf8(std::string text) {
    if (lockcore::is_utf8(text)) return text;
    std::string out;
    for (std::string_view rest = text; !rest.empty();) {
        const auto size = lockcore::utf8_character_size(rest);
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

std::string child_pointer(std::string_view pointer, std::string_view key) {
    std::string out;
    out.reserve(pointer.size() + key.size() + 1);
    out.append(pointer);
    out += '/';
    for (const char c : key) {
        if (c == '~') {
            out += "~0";
        } else if (c == '/') {
            out += "~1";
        } else {
            out += c;
        }
    }
    return out;
}

std::string child_pointer(std::string_view pointer, std::size_t index) {
    std::string out(pointer);
    out += '/';
    out += std::to_string(index);
    return out;
}

std::string shorten_pointer(std::string pointer) {
    constexpr std::size_t bytes_max = 1024;
    if (pointer.size() <= bytes_max) return pointer;
    return std::string(cut_utf8(pointer, bytes_max)) + "…";
}

}  // namespace fencegate::http
