#include <gateway/http/codec/json_pointer.hpp>
#include <gateway/http/codec/utf8.hpp>

namespace fencegate::http {

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
