#pragma once

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

namespace fencegate::metrics {

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
