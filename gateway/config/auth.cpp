#include <gateway/config/auth.hpp>

#include <algorithm>

namespace fencegate {

bool is_resource_prefix(std::string_view text) {
    const bool allowed = std::ranges::all_of(text, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view("._:@/-").find(c) != std::string_view::npos;
    });
    return allowed && text.size() <= resource_prefix_bytes_max && !text.starts_with('/') &&
           text.find("//") == std::string_view::npos;
}

bool is_plain_name(std::string_view text, std::size_t bytes_max) {
    return !text.empty() && text.size() <= bytes_max &&
           std::ranges::none_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

}  // namespace fencegate
