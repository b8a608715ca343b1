#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <unordered_map>
#include <utility>

namespace fencegate::limits {

/// The most recently used entries by key. A new entry replaces the one that was unused for longest.
///
/// Threads: not safe.
/// Limits:  `entries_max`; more only while more of them are in use.
template <class Key, class Value, class Hash = std::hash<Key>>
class recent_map {
  public:
    explicit recent_map(std::size_t entries_max) : entries_max_(entries_max) {}

    /// Returns the entry of the key, which it adds if there is none. `is_in_use`: whether an entry must be kept.
    template <class IsInUse>
    Value& find_or_add(const Key& key, IsInUse is_in_use) {
        if (const auto found = by_key_.find(key); found != by_key_.end()) {
            entries_.splice(entries_.end(), entries_, found->second);
            return found->second->second;
        }
        if (entries_.size() >= entries_max_) make_space(is_in_use);
        entries_.emplace_back(key, Value());
        by_key_.emplace(key, std::prev(entries_.end()));
        return entries_.back().second;
    }
    Value& find_or_add(const Key& key) {
        return find_or_add(key, [](const Value&) { return false; });
    }

    template <class Visit>
    void for_each(Visit visit) {
        for (auto& [key, value] : entries_)
            visit(value);
    }

    std::size_t size() const { return entries_.size(); }

  private:
    /// Entries in use that are looked at for one that is not.
    static constexpr std::size_t tries_max = 8;

    template <class IsInUse>
    void make_space(IsInUse is_in_use) {
        for (std::size_t tries = 0; tries < tries_max; ++tries) {
            const auto oldest = entries_.begin();
            if (!is_in_use(oldest->second)) {
                by_key_.erase(oldest->first);
                entries_.erase(oldest);
                return;
            }
            entries_.splice(entries_.end(), entries_, oldest);
        }
    }

    using entry = std::pair<const Key, Value>;
    const std::size_t entries_max_;
    std::list<entry> entries_;  ///< The least recently used first.
    std::unordered_map<Key, typename std::list<entry>::iterator, Hash> by_key_;
};

}  // namespace fencegate::limits
