#pragma once

#include <gateway/config/config.hpp>
#include <gateway/domain/history_item.hpp>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

namespace fencegate {

/// Rows of history that wait to be written, in order.
///
/// Threads: safe.
/// Limits:  audit.buffer_max rows in all; what comes then is lost and counted. With on_full::refuse the last eighth is
/// kept for the events of
///          leases that are given already: full() is true before it begins, so that nothing is lost unless those alone
///          fill it.
class event_buffer {
  public:
    explicit event_buffer(audit_config cfg) : cfg_(cfg) {}

    /// False if there was no room for all of them; then none was kept.
    bool add(std::vector<history_item> items);

    /// A copy of the oldest rows, which stay until they are removed.
    std::vector<history_item> front(std::size_t most) const;
    void remove_front(std::size_t count);
    /// Removes them as lost.
    void lose_front(std::size_t count);

    bool full() const;
    std::size_t size() const { return size_.load(std::memory_order_relaxed); }
    std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

  private:
    audit_config cfg_;
    mutable std::mutex mutex_;
    std::deque<history_item> items_;
    std::atomic<std::size_t> size_{0};
    std::atomic<std::uint64_t> dropped_{0};
};

}  // namespace fencegate
