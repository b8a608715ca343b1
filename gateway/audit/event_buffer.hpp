#pragma once

#include <gateway/config/config.hpp>
#include <gateway/domain/history_item.hpp>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace fencegate::audit {

/// Rows of history that wait to be written, in order, and numbered in that order from 1 on.
///
/// Threads: safe. One reader, which has one batch in its hands at a time.
/// Limits:  audit.buffer_max rows in all, those in the reader's hands too; what comes then is lost and counted. With
///          on_full::refuse the last eighth is kept for the events of leases that are given already: full() is true
///          before it begins, so that nothing is lost unless those alone fill it.
class event_buffer {
  public:
    event_buffer(audit_config cfg, std::string stream) : cfg_(cfg), stream_(std::move(stream)) {}

    /// False if there was no room for all of them; then none was kept.
    bool add(std::vector<history_item> items);

    /// The oldest rows, with their numbers; empty if there are none. They take up room until written() or lost().
    history_batch take(std::size_t most);
    void written(std::size_t count) { size_.fetch_sub(count, std::memory_order_relaxed); }
    void lost(std::size_t count);

    bool full() const;
    /// Less than an eighth is left, whatever is done about it.
    bool nearly_full() const;
    std::size_t size() const { return size_.load(std::memory_order_relaxed); }
    std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

  private:
    audit_config cfg_;
    std::string stream_;
    std::mutex mutex_;
    std::deque<history_item> items_;
    std::uint64_t next_sequence_ = 1;   ///< Of the first in items_.
    std::atomic<std::size_t> size_{0};  ///< Of items_ and what was taken.
    std::atomic<std::uint64_t> dropped_{0};
};

}  // namespace fencegate::audit
