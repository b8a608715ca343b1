#pragma once

#include <lockcore/invariant.hpp>
#include <lockcore/types.hpp>

#include <set>

namespace lockcore {

/// The waiters for one resource at one manager, in order of arrival. Only the head contends at the nodes. The queue
/// decides when the head tries again, and whether a lease released here is handed over to it.
///
/// The queue has no clock and no randomness: the driver passes in what happened, and waits as long as the result says.
///
/// Threads: not safe.
/// Source:  docs/protocol.md, "Waiting".
class wait_queue {
  public:
    using ticket = std::uint64_t;
    struct limits {
        std::size_t quorum = 1;
        std::uint32_t handoff_max = 0;
    };

    /// `handed_over`: the number of handoffs in a row before this queue was created.
    explicit wait_queue(limits l, std::uint32_t handed_over = 0) : limits_(l), handed_over_(handed_over) {}

    /// Adds a waiter. Each ticket is above those before, except that of a caller that returns to its kept place.
    void join(ticket t) { waiting_.insert(waiting_.end(), t); }
    /// Removes a waiter. Returns true if it was the head and others wait: the new head tries at once.
    bool leave(ticket t);
    bool empty() const { return waiting_.empty(); }
    std::size_t size() const { return waiting_.size(); }
    ticket head() const {
        LOCKCORE_INVARIANT(!waiting_.empty());
        return *waiting_.begin();
    }
    /// Returns the place of a waiter; the head has 1.
    std::size_t position(ticket t) const;

    /// The head found the resource held.
    ///
    /// In:  `remaining`: the time until the holder's lease expires; zero: unknown. `random`: any random number.
    /// Out: how long the head waits before its next try.
    milliseconds refused(milliseconds remaining, std::uint64_t random);

    /// A node has reported that a lease ended.
    ///
    /// Out: how long the head still waits: zero after a majority has reported it; before that majority_grace, for the
    ///      other messages may be lost.
    milliseconds lease_ended(node_index node, const nonce& ended);

    /// Returns whether a lease that is released here is handed over to the head (docs/protocol.md HAND-OVER), and
    /// counts the handoff.
    bool begin_handoff();
    /// Returns the number of handoffs in a row.
    std::uint32_t handed_over() const { return handed_over_; }
    /// A lease was released here without a handoff.
    ///
    /// Out: how long the head waits so that waiters of other managers can acquire the lease first.
    milliseconds lease_released(bool others_wait);

    /// The longest time between two tries: the most that a lost message delays a waiter.
    static constexpr milliseconds retry_delay_max{250};
    /// The delay after the first refusal; it doubles with each further refusal, up to retry_delay_max.
    static constexpr milliseconds retry_delay_min{4};
    /// The delay after the first node has reported the end of a lease.
    static constexpr milliseconds majority_grace{5};
    /// The delay in favour of waiters of other managers.
    static constexpr milliseconds yield_time{15};

  private:
    limits limits_;
    std::set<ticket> waiting_;
    unsigned refusals_ = 0;  ///< In a row, since the last report of a lease's end.
    std::uint32_t handed_over_;
    nonce ended_lease_;
    node_set reporting_nodes_;
};

}  // namespace lockcore
