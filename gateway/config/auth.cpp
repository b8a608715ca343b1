#include <gateway/config/auth.hpp>

#include <lockcore/encoding.hpp>

namespace fencegate {

bool verify_alike(jwt_config a, const jwt_config& b) {
    a.keys = b.keys;
    a.jwks_url = b.jwks_url;
    a.jwks_ca_file = b.jwks_ca_file;
    a.refresh = b.refresh;
    return a == b;
}

bool is_plain_name(std::string_view text, std::size_t bytes_max) {
    return !text.empty() && text.size() <= bytes_max && !lockcore::has_control_character(text);
}

}  // namespace fencegate
