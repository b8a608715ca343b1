// JSON Web Tokens: the input as a token, and its first line as the header and its second
// as the payload of a signed one.
#include "fuzz.hpp"

#include <gateway/http/identity/json_web_token.hpp>

#include <tests/unit/token_issuer.hpp>

#include <algorithm>
#include <functional>
#include <string>

namespace fencegate::fuzz {
namespace {

using std::chrono::system_clock;

constexpr system_clock::time_point now{std::chrono::seconds(1'763'719'209)};

jwt_config make_config() {
    jwt_config out;
    out.issuer = "https://id.example";
    out.audiences = {"fencegate"};
    out.prefixes_claim = "/fencegate/prefixes";
    out.exposed_claim = "/fencegate/exposed";
    out.database_role_claim = "/role";
    return out;
}

void check_changed(std::string token, const jwt_config& cfg, const token_key_set& keys) {
    const std::size_t position = std::hash<std::string_view>()(token) % token.size();
    const char before = token[position];
    for (const char changed : {static_cast<char>(before ^ 1), static_cast<char>(before ^ 0x20), '.', '='}) {
        if (changed == before) continue;
        token[position] = changed;
        require(!http::verify_token(token, cfg, keys, now), "a token with a changed byte is refused");
    }
}

}  // namespace

void run_input(std::string_view input) {
    static const jwt_config cfg = make_config();
    static const token_issuer issuer(token_issuer::kind::ed25519, "key-1");
    static const token_issuer rsa(token_issuer::kind::rsa_2048, "key-1");
    static const token_key_set keys = issuer.key_set();
    static const token_key_set rsa_keys = rsa.key_set();
    require(!http::verify_token(input, cfg, keys, now), "a token that the issuer has not signed is refused");

    const std::string_view header = take_line(input);
    const std::string token = issuer.token(header, take_line(input));
    require(!http::verify_token(token, cfg, rsa_keys, now), "a token is refused by another key of the same kid");
    const auto caller = http::verify_token(token, cfg, keys, now);
    if (!caller) return require(!caller.error().detail.empty(), "a refusal says why");
    require(is_plain_name(caller->principal, principal_bytes_max), "a principal is a plain name");
    require(caller->rights.valid_until() > now, "a token that has expired is refused");
    require(!http::verify_token(token, cfg, keys, caller->rights.valid_until()), "a token is refused from its end on");
    jwt_config other = cfg;
    other.algorithms.erase(token_algorithm::eddsa);
    require(!http::verify_token(token, other, keys, now), "a token of an algorithm that is not allowed is refused");
    check_changed(token, cfg, keys);
}

}  // namespace fencegate::fuzz
