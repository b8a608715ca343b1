#pragma once

#include <lockcore/types.hpp>

#include <string_view>
#include <vector>

namespace lockcore {

/// The holds of one lease, as several nodes tell of them: "which does it have, as far as these nodes know?"
///
/// A hold that was answered and not released is live on some node of every majority; one whose release was answered has
/// a tombstone on some node of every majority. So after a majority the live ids without a tombstone are all of them,
/// and besides those only holds that are just being asked for or given back.
class hold_view {
  public:
    /// `text`: live ids, then tombstones, then the id of the hold that closed the lease; a line each, a comma between
    /// two ids. What is no id is left out.
    void add(std::string_view text);
    void add(const hold_view& other);

    std::size_t count() const;
    /// Some node has its tombstone.
    bool released(const hold_id& id) const;
    /// Some node refuses further holds.
    bool closed() const { return closed_; }

  private:
    std::vector<hold_id> live_, dead_;
    bool closed_ = false;
};

}  // namespace lockcore
