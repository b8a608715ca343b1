#include <gateway/config/auth.hpp>

#include <lockcore/encoding.hpp>

#include <algorithm>

namespace fencegate {

bool verify_alike(jwt_config a, const jwt_config& b) {
    a.keys = b.keys;
    a.jwks_url = b.jwks_url;
    a.jwks_ca_file = b.jwks_ca_file;
    a.refresh = b.refresh;
    return a == b;
}

bool is_resource_prefix(std::string_view text) {
    const bool allowed = std::ranges::all_of(text, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view("._:@/-").find(c) != std::string_view::npos;
    });
    return allowed && text.size() <= resource_prefix_bytes_max && !text.starts_with('/') &&
           text.find("//") == std::string_view::npos;
}

bool is_plain_name(std::string_view text, std::size_t bytes_max) {
    return !text.empty() && text.size() <= bytes_max && !lockcore::has_control_character(text);
}

}  // namespace fencegate
