#pragma once

#include <lockcore/types.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace lockcore {

/// The largest value of a lease key; a longer one is another writer's (redis/lease.lua).
inline constexpr std::size_t lease_bytes_max = 16'384;

/// The holds of one lease, merged from the replies of several nodes.
///
/// A hold that was granted and not released is live on some node of every majority; a hold whose release was answered
/// has a tombstone on some node of every majority. So the replies of a majority contain every granted hold as a live id
/// without a tombstone; further such ids are holds whose HOLD or RELEASE is not yet answered.
class hold_view {
  public:
    /// Adds the holds that one node reports. `text` has three lines: live ids, tombstones, and the CLOSE mark; commas
    /// separate ids. Anything that is no id is ignored, and what is longer than a lease.
    void add(std::string_view text);
    void add(const hold_view& other);
    /// Returns the holds in the form that add() takes: the live ids that have no tombstone, the tombstones, and the CLOSE
    /// mark unless its hold is released.
    std::string text() const;

    /// Returns the number of live holds.
    std::size_t count() const;
    /// Returns whether some node has a tombstone of the hold.
    bool is_released(const hold_id& id) const;
    /// Returns whether some node refuses further holds.
    bool is_closed() const { return !close_mark_.empty(); }
    /// Returns the CLOSE mark of a node that refuses further holds: the id of the hold that is to be the last, and the
    /// mark of the call that closed the lease. That call, or the release of that hold, removes it.
    const std::string& close_mark() const { return close_mark_; }

  private:
    std::vector<hold_id> live_, tombstones_;
    std::string close_mark_;
};

}  // namespace lockcore
