#pragma once

#include <gateway/config/config.hpp>
#include <gateway/domain/history_item.hpp>
#include <gateway/domain/principal_share.hpp>
#include <gateway/pg/database.hpp>

#include <lockcore/events.hpp>

#include <boost/asio/io_context.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fencegate::audit {

/// Returns the history's rows for an event of lockcore: one for each resource, or one without a resource for an event
/// of a node.
std::vector<history_item> history_items(const lockcore::event& e);

/// Returns what distinguishes a shared lease from others with its token in the history (`detail.grant`).
std::string grant_of(const lockcore::nonce& attempt);
/// Returns an event's detail with the mode of a shared resource, and the grant unless `attempt` is that of no lease.
std::string add_sharing(std::string detail, const lockcore::nonce& attempt);

/// Rows of the history that wait to be written, numbered in order from 1 on: PostgreSQL adds the rows of each `stream`
/// once, by their numbers.
///
/// Threads: safe; one reader, which takes one batch at a time.
/// Limits:  audit.buffer_max rows, including those that the reader has taken; further rows are dropped and counted.
///          With on_full::refuse the last eighth is reserved for events of leases that were granted already
///          (must_refuse_leases), so that rows are lost only if those events alone fill it.
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
    /// finish_written() or finish_lost().
    history_batch take(std::size_t count_max);
    /// `count` rows that were taken are in the history.
    void finish_written(std::size_t count) { size_.fetch_sub(count, std::memory_order_relaxed); }
    /// `count` rows that were taken will never be; they count as dropped.
    void finish_lost(std::size_t count);

    /// Returns whether new leases of the principal have to be refused: on_full::refuse is set, and only the last eighth
    /// is free or the principal's events use three quarters of the others. An empty principal has no such share.
    bool must_refuse_leases(const std::string& principal) const;
    /// Returns whether only the last eighth is free.
    bool is_nearly_full() const;
    std::size_t size() const { return size_.load(std::memory_order_relaxed); }
    std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

  private:
    /// Returns how many rows one principal may have.
    std::size_t share_max() const;

    audit_config cfg_;
    std::string stream_;
    mutable std::mutex mutex_;
    std::deque<history_item> items_;
    principal_uses by_principal_;       ///< Rows in items_.
    std::uint64_t next_sequence_ = 1;   ///< The number of the first row in items_.
    std::atomic<std::size_t> size_{0};  ///< Rows in items_ and rows taken.
    std::atomic<std::uint64_t> dropped_{0};
};

/// Takes lease events from lockcore, keeps them in a bounded buffer, and adds them to the history in batches, in order.
/// While PostgreSQL is unreachable events wait in the buffer. Where the connection breaks while a batch is written, the
/// batch is sent again and PostgreSQL skips the rows that it has, so that every event is in the history once.
///
/// Threads:  any, but start() and flush().
/// Lifetime: outlives the lock_manager; the database outlives the run of `io`.
/// Limits:   audit.buffer_max rows (one for each resource); batches of up to 2,000 rows, at least 20 ms apart unless
///           they are full; pauses of up to 5 s while PostgreSQL is unreachable.
class event_sink final : public lockcore::event_observer {
  public:
    /// `gateway`: the name of this gateway, which each event gets.
    event_sink(audit_config cfg, std::string gateway, pg::database& database, boost::asio::io_context& io);
    ~event_sink() override;

    void on_event(lockcore::event e) override;
    /// For events that do not come from lockcore (lease_expired).
    void add(history_item item);
    /// For events of which any number may come at once: adds one if less than a sixteenth of the buffer is used. Out:
    /// whether it was added; an event that was not does not count as dropped.
    bool add_low_priority(history_item item);

    const std::string& gateway() const;
    /// Returns the buffer, whose dropped() also counts events whose content PostgreSQL refused.
    const event_buffer& buffer() const;

    /// Begins to write, on `io`.
    void start();
    /// Waits until all buffered events are written.
    ///
    /// Out: false where `until` passed before that. `io` must run.
    boost::asio::awaitable<bool> flush(std::chrono::steady_clock::time_point until);

  private:
    struct impl;
    std::shared_ptr<impl> impl_;  ///< Shared with the coroutine that writes.
};

}  // namespace fencegate::audit
