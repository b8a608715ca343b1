#include <gateway/http/identity/token_authenticator.hpp>

#include <openssl/sha.h>

#include <algorithm>
#include <utility>

namespace fencegate::http {
namespace {

/// A verification takes about 0.1 ms, so that tokens beyond these only take a little more time.
constexpr std::size_t cached_tokens_max = 2'000;

bool has_same_source(const jwt_config& a, const jwt_config& b) {
    return !a.keys && !b.keys && a.jwks_url == b.jwks_url && a.jwks_ca_file == b.jwks_ca_file;
}

constexpr std::chrono::seconds first_keys_timeout{5};

}  // namespace

token_cache::caller_ptr token_cache::find(const digest& token, const keys_ptr& keys,
                                          std::chrono::system_clock::time_point now) {
    const std::lock_guard lock(mutex_);
    if (keys_ != keys) {
        places_.clear();
        entries_.clear();
        keys_ = keys;
    }
    const auto place = places_.find(token);
    if (place == places_.end()) return nullptr;
    if (place->second->caller->rights.valid_until() <= now) {
        entries_.erase(place->second);
        places_.erase(place);
        return nullptr;
    }
    entries_.splice(entries_.begin(), entries_, place->second);
    return entries_.front().caller;
}

void token_cache::insert(const digest& token, const keys_ptr& keys, caller_ptr caller) {
    const std::lock_guard lock(mutex_);
    if (keys_ != keys || places_.contains(token)) return;
    if (entries_.size() == tokens_max_) {
        places_.erase(entries_.back().token);
        entries_.pop_back();
    }
    entries_.push_front({token, std::move(caller)});
    places_.emplace(token, entries_.begin());
}

std::size_t token_cache::size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
}

token_authenticator::token_authenticator(const jwt_config& cfg, std::uint64_t rules,
                                         const token_authenticator* replaced)
    : cfg_(cfg),
      rules_(rules),
      source_(cfg, first_keys_timeout,
              replaced != nullptr && has_same_source(cfg, replaced->cfg_) ? replaced->keys() : nullptr),
      cache_(cached_tokens_max) {}

bool token_authenticator::accepts(const identity& caller) const {
    const auto keys = source_.keys();
    return std::ranges::any_of(keys->keys(),
                               [&](const token_key& key) { return credential_of(key) == caller.credential; });
}

std::string token_authenticator::credential_of(const token_key& key) const {
    return http::credential_of(key) + " " + std::to_string(rules_);
}

boost::system::result<std::shared_ptr<const identity>, token_fault> token_authenticator::identify(
    std::string_view token, std::chrono::system_clock::time_point now) {
    const auto keys = source_.keys();
    token_cache::digest digest{};
    if (token.size() <= token_bytes_max) {
        SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
        if (auto cached = cache_.find(digest, keys, now)) return cached;
    }
    auto verified = verify_token(token, cfg_, *keys, now);
    if (!verified) {
        if (verified.error().unknown_key) source_.request_for_unknown_key();
        return verified.error();
    }
    verified->credential += " " + std::to_string(rules_);
    auto caller = std::make_shared<const identity>(std::move(*verified));
    cache_.insert(digest, keys, caller);
    return caller;
}

}  // namespace fencegate::http
