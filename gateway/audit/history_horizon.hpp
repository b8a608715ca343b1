#pragma once

#include <gateway/domain/history_item.hpp>

#include <cstdint>
#include <optional>

namespace fencegate::audit {

/// Finds the id up to which the history is settled: no further row with such an id will become visible. Ids are
/// assigned before rows are committed, so that a row may become visible after one with a higher id.
///
/// It remembers the last id of one moment, and the transactions that may have taken ids up to it. When all of those
/// have ended, every row up to that id is visible or was rolled back. While a transaction stays open the settled id
/// does not grow, so that readers miss no row.
class history_horizon {
  public:
    /// Takes the next state of the history's end; states are passed in order. Returns settled().
    std::optional<std::int64_t> advance(history_tail seen);

    /// Returns the settled id; empty while it is unknown.
    std::optional<std::int64_t> settled() const { return settled_; }
    /// Whether ids were assigned that are not settled.
    bool has_unsettled_ids() const { return pending_.has_value(); }

  private:
    std::optional<std::int64_t> settled_;
    std::optional<history_tail> pending_;  ///< An earlier state whose writers have not all ended.
};

}  // namespace fencegate::audit
