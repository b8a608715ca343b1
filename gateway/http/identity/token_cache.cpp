#include <gateway/http/identity/token_cache.hpp>

#include <utility>

namespace fencegate::http {

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

}  // namespace fencegate::http
