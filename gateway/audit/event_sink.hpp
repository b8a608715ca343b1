#pragma once

#include <gateway/config/config.hpp>
#include <gateway/pg/history/history_executor.hpp>

#include <lockcore/events.hpp>

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstdint>
#include <memory>

namespace fencegate::audit {

/// Takes lease events from lockcore, keeps them in a bounded buffer, and adds them to the history in batches, in order.
/// PostgreSQL being away costs nothing but room in the buffer. Where the connection breaks while a batch is written,
/// the batch is sent again, and PostgreSQL passes over what it has: every event is in the history once.
///
/// Threads: on_event, add, full and dropped from any thread. Lifetime: outlives the lock_manager; the executor outlives
/// `io`'s running. Limits:  audit.buffer_max rows (one a resource), batches of 2,000, or of what came
/// within the 5 ms after the one before, a pause of up to 5 s while PostgreSQL is away.
class event_sink final : public lockcore::event_observer {
  public:
    event_sink(audit_config cfg, pg::history_executor& history, boost::asio::io_context& io);
    ~event_sink() override;

    void on_event(lockcore::event e) override;
    /// For events that do not come from lockcore (a refused write whose transaction was rolled back, …).
    void add(history_item item);

    /// True while new grants must be refused (audit.on_full: refuse). The last eighth of the buffer is kept for the
    /// events of leases that are given already; only if those fill it too are events lost.
    bool full() const;
    /// Less than an eighth is left; with audit.on_full: drop events are dropped next.
    bool nearly_full() const;
    /// Events lost because the buffer was full, or because PostgreSQL refused them for what they say.
    std::uint64_t dropped() const;
    /// Rows that wait to be written.
    std::size_t size() const;

    /// Begins to write on `io`.
    void start();
    /// Writes out what is buffered; false if `until` came first. Run on `io` while it still runs.
    boost::asio::awaitable<bool> flush(std::chrono::steady_clock::time_point until);

  private:
    struct impl;
    std::shared_ptr<impl> impl_;  ///< Shared with the coroutine that writes.
};

}  // namespace fencegate::audit
