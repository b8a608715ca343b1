#pragma once

#include <gateway/config/auth.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/http/identity/identity.hpp>

#include <boost/system/result.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::http {

class token_authenticator;

/// Why a request has no caller.
struct authentication_failure {
    failure cause;  ///< errc::unauthenticated; too_many_requests where the dispatcher checks no credential.
    bool invalid_token = false;  ///< The request has a token, which `cause.detail` refuses.
    bool keys_outdated = false;  ///< The token names a key that is not known, but that `jwks_url` may have by now.
};

/// Returns the key or token of `Bearer …`; empty for another scheme.
std::string_view bearer_of(std::string_view authorization);

/// Finds the caller of a request by its credential: an API key, a JSON Web Token, or the certificate of its connection
/// (docs/decisions.md, 0012).
///
/// Threads: any; its own state is the cache and the keys of tokens.
class authenticator {
  public:
    /// Without credentials every caller is the principal `dev` with all scopes. Errors: std::invalid_argument if a hash
    /// is not 64 hexadecimal digits.
    /// Timeout: 5 s, in which it waits for the keys of jwks_url.
    /// `replaced`: the authenticator before a reload. If `auth.jwt` is the same, its keys and cache are used further;
    /// if only `jwks_url` is the same, its keys.
    explicit authenticator(const auth_config& cfg, const authenticator* replaced = nullptr);
    ~authenticator();

    using caller_result = boost::system::result<std::shared_ptr<const identity>, authentication_failure>;

    /// Returns the caller whose credential a request carries.
    ///
    /// In:     `authorization` and `x_api_key` are the values of these headers, `Bearer KEY`, `Bearer TOKEN` or `KEY`.
    ///         If tokens are accepted, a bearer with two dots is one. All that are given have to be valid and of one
    ///         principal; the certificate counts only without them.
    /// Out:    never null; outlives the authenticator if it has to.
    /// Errors: errc::unauthenticated.
    caller_result identify(std::string_view authorization, std::string_view x_api_key,
                           const client_certificate* certificate, std::chrono::system_clock::time_point now) const;

    /// Returns whether the credential of `caller`, whom this authenticator or the one before a reload returned, is
    /// still accepted for its principal: the key or entry is there, or the issuer has the token's key, and tokens are
    /// verified as before (verify_alike()). That the credential may have ended is not checked.
    bool accepts(const identity& caller) const;

    /// Returns why the keys of a `jwks_url` that `replaced` did not have could not be requested; empty if they could,
    /// or if there was no `replaced`.
    const std::string& token_source_fault() const { return token_source_fault_; }

    /// Returns the keys of tokens; null if none are accepted. The pointer changes if and only if the keys change.
    std::shared_ptr<const token_key_set> token_keys() const;

  private:
    using digest = std::array<unsigned char, 32>;
    struct entry {
        digest hash{};
        std::shared_ptr<const identity> caller;
    };
    caller_result identify_bearer(std::string_view bearer, std::chrono::system_clock::time_point now) const;
    caller_result identify_key(std::string_view key) const;

    std::vector<entry> entries_;
    std::optional<jwt_config> jwt_;
    std::shared_ptr<token_authenticator> tokens_;  ///< Null: no tokens are accepted.
    std::string token_source_fault_;
    /// Counts the reloads that changed how tokens are verified; callers of earlier tokens are not accepted any more.
    std::uint64_t token_rules_version_ = 0;
    certificate_rules certificates_;
    std::shared_ptr<const identity> keyless_caller_;  ///< Null if there are credentials.
};

}  // namespace fencegate::http
