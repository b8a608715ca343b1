#pragma once

#include <lockcore/invariant.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <unordered_map>

namespace fencegate {

/// Returns the share of one principal in the places of all: three quarters, rounded up.
constexpr std::size_t share_of(std::size_t places) {
    return places - places / 4;
}

/// Returns the share of one principal in a few workers: the same, but not all of them.
constexpr std::size_t share_of_workers(std::size_t workers) {
    return workers < 2 ? workers : std::min(share_of(workers), workers - 1);
}

/// What each principal uses of something that all of them share.
///
/// Threads: not safe.
class principal_uses {
  public:
    std::size_t used_by(const std::string& principal) const {
        const auto found = used_.find(principal);
        return found == used_.end() ? 0 : found->second;
    }
    void add(const std::string& principal, std::size_t amount = 1) {
        if (amount > 0) used_[principal] += amount;
    }
    /// Adds if the principal uses at most `share` then. Out: whether it does.
    bool try_add(const std::string& principal, std::size_t amount, std::size_t share) {
        const auto entry = used_.try_emplace(principal, 0).first;
        const bool fits = entry->second + amount <= share;
        if (fits) entry->second += amount;
        if (entry->second == 0) used_.erase(entry);
        return fits;
    }
    void remove(const std::string& principal, std::size_t amount = 1) {
        if (amount == 0) return;
        const auto found = used_.find(principal);
        LOCKCORE_INVARIANT(found != used_.end() && found->second >= amount);
        found->second -= amount;
        if (found->second == 0) used_.erase(found);
    }

  private:
    std::unordered_map<std::string, std::size_t> used_;  ///< Only principals that use something.
};

}  // namespace fencegate
