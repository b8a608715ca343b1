#pragma once

#include <gateway/config/config.hpp>
#include <gateway/pg/database.hpp>

#include <lockcore/events.hpp>

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace fencegate::audit {

/// Takes lease events from lockcore, keeps them in a bounded buffer, and adds them to the history in batches, in order.
/// While PostgreSQL is unreachable events wait in the buffer. Where the connection breaks while a batch is written, the
/// batch is sent again and PostgreSQL skips the rows that it has, so that every event is in the history once.
///
/// Threads:  on_event, add, full and dropped from any thread.
/// Lifetime: outlives the lock_manager; the database outlives the run of `io`.
/// Limits:   audit.buffer_max rows (one for each resource); batches of up to 2,000 rows, at least 5 ms apart unless
///           they are full; pauses of up to 5 s while PostgreSQL is unreachable.
class event_sink final : public lockcore::event_observer {
  public:
    event_sink(audit_config cfg, pg::database& database, boost::asio::io_context& io);
    ~event_sink() override;

    void on_event(lockcore::event e) override;
    /// For events that do not come from lockcore (lease_expired).
    void add(history_item item);
    /// For events of which any number may come at once: adds one if less than a sixteenth of the buffer is used. Out:
    /// whether it was added; an event that was not does not count as dropped.
    bool add_low_priority(history_item item);

    /// Whether new leases of the principal must be refused (audit.on_full: refuse). The last eighth of the buffer is
    /// reserved for events of leases that were granted already; events are lost only if those fill it. A principal has
    /// at most three quarters of the rest; an empty one has no such share.
    bool full(const std::string& principal) const;
    /// Whether less than an eighth of the buffer is free; with `audit.on_full: drop` events are dropped once it is
    /// full.
    bool is_nearly_full() const;
    /// Number of events lost because the buffer was full, or because PostgreSQL refused their content.
    std::uint64_t dropped() const;
    /// Number of rows that wait to be written.
    std::size_t size() const;

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
