#pragma once

#include <gateway/config/config.hpp>
#include <gateway/domain/history_item.hpp>
#include <gateway/domain/principal_share.hpp>

#include <lockcore/events.hpp>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace fencegate::audit {

/// Returns the history's rows for an event of lockcore: one for each resource, or one without a resource for an event
/// of a node.
std::vector<history_item> history_items(const lockcore::event& e);

/// Rows of the history that wait to be written, numbered in order from 1 on.
///
/// Threads: safe; one reader, which takes one batch at a time.
/// Limits:  audit.buffer_max rows, including those that the reader has taken; further rows are dropped and counted.
///          With on_full::refuse the last eighth is reserved for events of leases that were granted already: full() is
///          true when only that eighth is left, so that rows are lost only if those events alone fill it. It is also
///          true for a principal whose events use three quarters of the others.
class event_buffer {
  public:
    event_buffer(audit_config cfg, std::string stream) : cfg_(cfg), stream_(std::move(stream)) {}

    /// Adds all items or, where they do not fit, none.
    ///
    /// Out: whether they were added.
    bool add(std::vector<history_item> items);
    /// Adds an item if less than a sixteenth of the buffer is used, so that items added in this way alone never make
    /// it full. One that is not added does not count as dropped.
    ///
    /// Out: whether it was added.
    bool add_low_priority(history_item item);

    /// Takes the oldest rows with their numbers; empty if there are none. They count against the limit until
    /// mark_written() or mark_lost().
    history_batch take(std::size_t count_max);
    void mark_written(std::size_t count) { size_.fetch_sub(count, std::memory_order_relaxed); }
    void mark_lost(std::size_t count);

    /// Whether new leases of the principal have to be refused: on_full::refuse is set, and less than an eighth is free
    /// or the principal has used up its share. An empty principal has no share.
    bool full(const std::string& principal) const;
    /// Whether less than an eighth is free.
    bool is_nearly_full() const;
    std::size_t size() const { return size_.load(std::memory_order_relaxed); }
    std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

  private:
    audit_config cfg_;
    std::string stream_;
    std::size_t share_max() const;

    mutable std::mutex mutex_;
    std::deque<history_item> items_;
    principal_uses by_principal_;       ///< Rows in items_.
    std::uint64_t next_sequence_ = 1;   ///< The number of the first row in items_.
    std::atomic<std::size_t> size_{0};  ///< Rows in items_ and rows taken.
    std::atomic<std::uint64_t> dropped_{0};
};

}  // namespace fencegate::audit
