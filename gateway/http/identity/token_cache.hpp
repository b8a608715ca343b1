#pragma once

#include <gateway/config/token_keys.hpp>
#include <gateway/http/identity/identity.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>

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

}  // namespace fencegate::http
