#pragma once

#include <gateway/domain/history_item.hpp>

#include <cstdint>
#include <optional>

namespace fencegate::audit {

/// Up to which id the history is settled: nothing will ever appear there any more. Ids are given before rows are
/// committed, so that a row may become visible behind one with a higher id.
///
/// At some moment the last id and the transactions that may have taken ids up to it are noted. When none of those is
/// left, every row up to that id is there, or was rolled back. A transaction that stays open holds the horizon where it
/// is, and nothing that lies behind it is lost.
class history_horizon {
  public:
    /// With one look at the tail after the other, in order. Gives settled().
    std::optional<std::int64_t> advance(history_tail seen);

    /// Empty: not known yet.
    std::optional<std::int64_t> settled() const { return settled_; }
    /// Whether ids were given out that are not settled.
    bool behind() const { return noted_.has_value(); }

  private:
    std::optional<std::int64_t> settled_;
    std::optional<history_tail> noted_;  ///< An earlier look whose writers are not all gone.
};

}  // namespace fencegate::audit
