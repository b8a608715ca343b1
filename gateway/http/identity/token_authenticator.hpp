#pragma once

#include <gateway/config/auth.hpp>
#include <gateway/config/token_keys.hpp>
#include <gateway/http/identity/identity.hpp>
#include <gateway/http/identity/json_web_token.hpp>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

namespace fencegate::http {

/// Requests the key set of `jwks_url`. Follows no redirect.
///
/// Out:     its text; empty if it failed, and `fault` says why.
/// Limits:  token_key_set::text_bytes_max.
/// Timeout: 10 s in all. Cancel: by `stop`, within about a second.
/// Threads: blocks its thread.
std::optional<std::string> fetch_key_set(const jwt_config& cfg, const std::stop_token& stop, std::string& fault);

/// Has the keys of an issuer: those of `jwks_file`, or those that a thread of its own requests from `jwks_url` again
/// and again. A request that fails leaves the keys as they are and is logged.
///
/// Threads: any.
class token_key_source {
  public:
    using keys_ptr = std::shared_ptr<const token_key_set>;
    /// See fetch_key_set.
    using fetch_function =
        std::function<std::optional<std::string>(const jwt_config&, const std::stop_token&, std::string& fault)>;
    /// When `jwks_url` is requested beside every jwt_config::refresh.
    struct pauses {
        std::chrono::milliseconds after_failure{10'000};  ///< If that is shorter than jwt_config::refresh.
        std::chrono::milliseconds unknown_key{60'000};    ///< Between two requests because of unknown keys.
    };

    /// With `jwks_url` it begins with `earlier`, the latest keys of that URL (null: it is another one); if there are
    /// none, it waits for the first answer, at most `first_timeout`.
    token_key_source(jwt_config cfg, std::chrono::milliseconds first_timeout, keys_ptr earlier);
    token_key_source(jwt_config cfg, std::chrono::milliseconds first_timeout, fetch_function fetch, pauses times,
                     keys_ptr earlier = nullptr);
    ~token_key_source();
    token_key_source(const token_key_source&) = delete;
    token_key_source& operator=(const token_key_source&) = delete;

    /// Returns why no request of `jwks_url` has succeeded yet; empty if one has, or if the URL is that of `earlier`.
    std::string fault() const;

    /// Returns the present keys; never null. The pointer changes if and only if the keys change.
    keys_ptr keys() const;

    /// Requests the keys soon, because a token has an unknown key; not if it was called within pauses::unknown_key.
    void request_for_unknown_key();

  private:
    void run(const std::stop_token& stop);
    /// Requests the keys once. Out: whether it succeeded.
    bool refresh(const std::stop_token& stop);

    const jwt_config cfg_;
    const fetch_function fetch_;
    const pauses pauses_;
    mutable std::mutex mutex_;
    std::condition_variable_any changed_;
    keys_ptr keys_;
    bool asked_once_ = false;
    bool has_answer_ = false;  ///< From the file, the earlier source, or jwks_url.
    std::string first_fault_;  ///< Why the latest request without an answer before it failed.
    bool requested_ = false;
    std::optional<std::chrono::steady_clock::time_point> last_request_;
    std::string text_;        ///< The latest valid answer, used by the thread only, as is last_fault_.
    std::string last_fault_;  ///< So that the same failure is logged once.
    std::jthread thread_;     ///< Last, so that it ends first.
};

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

    /// Adds the caller of a token that was verified with these keys; not if find() was called with other ones
    /// meanwhile.
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
    /// With `jwks_url` it waits for the keys; see token_key_source. `rules`: a number for the rules of `cfg`, another
    /// one where verify_alike() is false. `replaced`: that before a reload, whose keys are used further if they come
    /// from the same `jwks_url`.
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
