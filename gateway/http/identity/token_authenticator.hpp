#pragma once

#include <gateway/config/auth.hpp>
#include <gateway/http/identity/json_web_token.hpp>
#include <gateway/http/identity/token_cache.hpp>
#include <gateway/http/identity/token_key_source.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace fencegate::http {

/// Finds the caller of a JSON Web Token.
///
/// Threads: any.
class token_authenticator {
  public:
    /// With `jwks_url` it waits for the keys; see token_key_source. `rules`: a number for the rules of `cfg`, another one
    /// where verify_alike() is false. `replaced`: that before a reload, whose keys are used further if they come from the
    /// same `jwks_url`.
    explicit token_authenticator(const jwt_config& cfg, std::uint64_t rules = 0,
                                 const token_authenticator* replaced = nullptr);

    /// Returns the caller of a token; never null. Errors: see verify_token.
    boost::system::result<std::shared_ptr<const identity>, token_fault> identify(
        std::string_view token, std::chrono::system_clock::time_point now);

    /// Returns whether `caller` is that of a token, and the token's key is there and its rules are these.
    bool accepts(const identity& caller) const;

    /// As token_key_source::fault.
    std::string source_fault() const { return source_.fault(); }

    /// As token_key_source::keys.
    token_key_source::keys_ptr keys() const { return source_.keys(); }

  private:
    std::string credential_of(const token_key& key) const;

    const jwt_config cfg_;
    const std::uint64_t rules_;
    token_key_source source_;
    token_cache cache_;
};

}  // namespace fencegate::http
