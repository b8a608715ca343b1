#pragma once

#include <gateway/pg/database.hpp>

#include <lockcore/lock_manager.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::metrics {

/// Asks PostgreSQL once an interval for the state of the guard, and what would let a change past it
/// (fencing.watch_guard, which also records new faults in the history), keeps the latest answer, and logs new faults.
/// Asks for the size of the history, too.
///
/// Threads:  latest() and history() from any thread.
/// Limits:   three queries of some 100 ms, one after the other, on a connection for the history.
/// Lifetime: the database outlives the run of `io`.
class guard_watch {
  public:
    struct finding {
        guard_report report;
        std::chrono::system_clock::time_point at;  ///< When PostgreSQL answered.
    };

    guard_watch(pg::database& database, std::chrono::milliseconds interval, boost::asio::io_context& io);
    ~guard_watch();

    /// Begins, on `io`.
    void start();
    /// Returns the latest answer; empty before the first one.
    std::optional<finding> latest() const;
    /// Returns the latest answer about the history; empty before the first one.
    std::optional<history_extent> history() const;

  private:
    struct impl;
    std::shared_ptr<impl> impl_;  ///< Shared with the coroutine.
};

/// Counts the callers that wait for leases at all gateways. While any wait at this one, it stores in PostgreSQL how
/// many (fencing.waiting), where the others read it.
///
/// Threads:  count() from any thread.
/// Limits:   one statement every 2 s while callers wait, else none; 1,000 resources.
/// Lifetime: the lock manager and the database outlive the run of `io`; stop() has to be called before the lock_manager
///           stops.
class waiting_watch {
  public:
    struct finding {
        lockcore::waiting_overview callers;  ///< Of all gateways.
        /// How many wait at this gateway, which comes first, and at others where any wait.
        std::vector<std::pair<std::string, std::size_t>> gateways;
        bool complete = false;  ///< PostgreSQL has answered, so that no gateway is left out.
    };

    waiting_watch(lockcore::lock_manager& locks, pg::database& database, std::string gateway,
                  boost::asio::io_context& io);
    ~waiting_watch();

    /// Begins, on `io`.
    void start();
    /// Blocks until no count for PostgreSQL is in progress; `io` must run, in another thread.
    void stop();
    /// Returns who waits for resources whose name begins with `prefix`; of other gateways as of the last 10 s. Waits
    /// for PostgreSQL for half a second.
    boost::asio::awaitable<finding> count(std::string prefix, std::chrono::steady_clock::time_point until) const;

  private:
    struct impl;
    std::shared_ptr<impl> impl_;  ///< Shared with the coroutine.
};

/// Searches the nodes for leaked leases periodically, keeps the latest report, and logs changes. For a node that can't
/// be searched it keeps the result of the search before.
///
/// Threads:  latest() from any thread.
/// Lifetime: stop() has to be called before the lock_manager stops.
class leak_watch {
  public:
    struct finding {
        lockcore::leak_report report;
        std::chrono::system_clock::time_point at;  ///< When the search ended.
    };

    /// Searches every `interval`, on `io`; with 0 never.
    leak_watch(lockcore::lock_manager& locks, std::chrono::milliseconds interval, boost::asio::io_context& io)
        : locks_(locks), interval_(interval), io_(io), timer_(io) {}

    void start();
    /// Blocks until the search under way has ended; `io` must run, in another thread.
    void stop();
    /// Returns the latest report; empty before the first search has ended.
    std::optional<finding> latest() const;

  private:
    boost::asio::awaitable<void> run();
    void store(lockcore::leak_report report);

    lockcore::lock_manager& locks_;
    const std::chrono::milliseconds interval_;
    boost::asio::io_context& io_;
    boost::asio::steady_timer timer_;
    boost::asio::cancellation_signal cancel_;
    std::future<void> ended_;
    mutable std::mutex mutex_;
    std::optional<finding> latest_;
};

}  // namespace fencegate::metrics
