#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string_view>
#include <unordered_set>

namespace lockcore {

/// The leases and holds that this core has ended last, by their ids, for the answer to a later call why its lease is lost.
/// Only texts depend on it.
///
/// Limits: 16,384 ids, of which it keeps hashes.
class ended_memory {
  public:
    void add(std::string_view id) {
        if (!known_.insert(hash_of(id)).second) return;
        in_order_.push_back(hash_of(id));
        if (in_order_.size() <= ids_max) return;
        known_.erase(in_order_.front());
        in_order_.pop_front();
    }
    bool contains(std::string_view id) const { return known_.contains(hash_of(id)); }

  private:
    static constexpr std::size_t ids_max = 16'384;
    static std::size_t hash_of(std::string_view id) { return std::hash<std::string_view>{}(id); }

    std::unordered_set<std::size_t> known_;
    std::deque<std::size_t> in_order_;
};

}  // namespace lockcore
