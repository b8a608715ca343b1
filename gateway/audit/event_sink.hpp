#pragma once

#include <gateway/config/config.hpp>
#include <gateway/pg/pool.hpp>

#include <lockcore/events.hpp>

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstdint>
#include <memory>

namespace fencegate {

/// Takes lease events from lockcore, keeps them in a bounded buffer, and adds them to the history in batches, in order.
/// PostgreSQL being away costs nothing but room in the buffer.
///
/// Threads: on_event and full from any thread. Lifetime: outlives the lock_manager.
class event_sink final : public lockcore::event_observer {
  public:
    event_sink(audit_config cfg, pg::pool& pool, boost::asio::io_context& io);
    ~event_sink() override;

    void on_event(lockcore::event e) override;
    /// For events that do not come from lockcore (a refused write whose transaction was rolled back, …).
    void add(history_item item);

    /// True while new grants must be refused (audit.on_full: refuse, and no room).
    bool full() const;
    /// Events lost because the buffer was full (audit.on_full: drop).
    std::uint64_t dropped() const;

    /// Begins to write on `io`.
    void start();
    /// Writes out what is buffered; false if `until` came first. Run on `io` while it still runs.
    boost::asio::awaitable<bool> flush(std::chrono::steady_clock::time_point until);

  private:
    struct impl;
    std::unique_ptr<impl> impl_;
};

}  // namespace fencegate
