#pragma once

#include <gateway/config/auth.hpp>
#include <gateway/config/token_keys.hpp>
#include <gateway/http/identity/identity.hpp>
#include <gateway/http/identity/json_web_token.hpp>
#include <gateway/http/identity/token_key_source.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace fencegate::http {

/// The callers of tokens that were verified, so that a token is verified once while it is in use.
///
/// Threads: any.
/// Limits:  when it is full, the token that was not used for longest is removed.
class token_cache {
  public:
    /// SHA-256 of a token.
    using digest = std::array<unsigned char, 32>;
    using keys_ptr = std::shared_ptr<const token_key_set>;
    using caller_ptr = std::shared_ptr<const identity>;

    explicit token_cache(std::size_t tokens_max) : tokens_max_(tokens_max) {}

    /// Returns the caller of a token that was verified with these keys; null if there is none or its rights have ended.
    /// Other keys than in the last call empty the cache.
    caller_ptr find(const digest& token, const keys_ptr& keys, std::chrono::system_clock::time_point now);

    /// Adds the caller of a token that was verified with these keys; not if find() was called with other ones meanwhile.
    void insert(const digest& token, const keys_ptr& keys, caller_ptr caller);

    std::size_t size() const;

  private:
    struct entry {
        digest token;
        caller_ptr caller;
    };
    const std::size_t tokens_max_;
    mutable std::mutex mutex_;
    keys_ptr keys_;
    std::list<entry> entries_;  ///< Most recently used first.
    std::map<digest, std::list<entry>::iterator> places_;
};

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
