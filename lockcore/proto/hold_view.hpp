#pragma once

#include <lockcore/types.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace lockcore {

/// The largest value of a lease key; a longer one is another writer's (redis/lease.lua).
inline constexpr std::size_t lease_bytes_max = 16'384;
/// The most CLOSE marks of a lease (redis/lease.lua).
inline constexpr std::size_t close_marks_max = 64;
/// The most live ids, and the most tombstones, that are read of a lease. A node adds holds up to 64 of each; what was merged
/// of several nodes may have more. With so many a lease is still smaller than lease_bytes_max.
inline constexpr std::size_t hold_ids_max = 256;

/// The holds of one lease, merged from the replies of several nodes. The two ids of a hold (hold_id) count as one.
///
/// A hold that was granted and not released is live on some node of every majority; a hold whose release was answered
/// has a tombstone on some node of every majority. So the replies of a majority contain every granted hold as a live id
/// without a tombstone; further such ids are holds whose HOLD or RELEASE is not yet answered.
class hold_view {
  public:
    /// Adds the holds that one node reports. `text` has three lines: live ids and tombstones, separated by commas, and
    /// the CLOSE marks. Anything that is no id and no mark is ignored, and what exceeds the limits of a lease.
    void add(std::string_view text);
    void add(const hold_view& other);
    /// Returns the holds in the form that add() takes: the live ids that have no tombstone, the tombstones, and the CLOSE
    /// marks.
    std::string text() const;

    /// Returns the number of live holds.
    std::size_t count() const;
    /// Returns whether some node has a tombstone of the hold. That of a tentative id, left by an undo, says nothing about
    /// the confirmed one.
    bool is_released(const hold_id& id) const;
    /// Returns the CLOSE marks of all nodes, with which a node refuses further holds: of each call that closed the lease
    /// the id of its hold, which is to be the last, and 16 digits of the call. Only that call removes its mark.
    const std::string& close_marks() const { return close_marks_; }

  private:
    void add_marks(std::string_view marks);

    std::vector<hold_id> live_, tombstones_;
    std::string close_marks_;
};

}  // namespace lockcore
