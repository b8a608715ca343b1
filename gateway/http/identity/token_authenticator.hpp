#pragma once

#include <gateway/config/auth.hpp>
#include <gateway/http/identity/json_web_token.hpp>
#include <gateway/http/identity/token_cache.hpp>
#include <gateway/http/identity/token_key_source.hpp>

#include <chrono>
#include <memory>
#include <string_view>

namespace fencegate::http {

/// Finds the caller of a JSON Web Token.
///
/// Threads: any.
class token_authenticator {
  public:
    /// With `jwks_url` it waits for the keys; see token_key_source.
    explicit token_authenticator(const jwt_config& cfg);

    /// Returns the caller of a token; never null. Errors: see verify_token.
    boost::system::result<std::shared_ptr<const identity>, token_fault> identify(
        std::string_view token, std::chrono::system_clock::time_point now);

    /// As token_key_source::keys.
    token_key_source::keys_ptr keys() const { return source_.keys(); }

  private:
    const jwt_config cfg_;
    token_key_source source_;
    token_cache cache_;
};

}  // namespace fencegate::http
