#pragma once

#include <gateway/config/auth.hpp>
#include <gateway/config/token_keys.hpp>
#include <gateway/http/identity/identity.hpp>

#include <boost/system/result.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace fencegate::http {

/// Returns whether `signature` is that of `text` by `key` (RFC 7518, 3.3 and 3.4; RFC 8037, 3.1).
///
/// Threads: any.
bool verify_signature(const token_key& key, std::string_view text, std::string_view signature);

inline constexpr std::size_t token_bytes_max = 8 * 1024;

/// Why a token is refused.
struct token_fault {
    std::string_view detail;   ///< A sentence for the caller, without any part of the token. Static.
    bool unknown_key = false;  ///< No key has the token's `kid`; the issuer may have a new one.
};

/// Returns the name of a key as a credential: two keys with the same `kid` have different ones.
std::string credential_of(const token_key& key);

/// Verifies a JSON Web Token in its compact form (RFC 7515, 7.1): its form, signature and claims.
///
/// In:     only `keys` are used: no member of the token's header can name or carry another key, and each key verifies
///         one algorithm. `now` is compared with `exp`, which is required, and `nbf`.
/// Out:    the principal and the rights that the claims give, valid until `exp` and the clock skew.
/// Limits: token_bytes_max; the rights have the bounds of rights_config. A claim that breaks them is refused.
/// Source: RFC 8725 (best current practices). No library of Debian 12 has both EdDSA and key sets (libjwt and cpp-jwt
///         lack key sets, cjose EdDSA), so the form is parsed here, and OpenSSL verifies the signatures.
boost::system::result<identity, token_fault> verify_token(std::string_view token, const jwt_config& cfg,
                                                          const token_key_set& keys,
                                                          std::chrono::system_clock::time_point now);

}  // namespace fencegate::http
