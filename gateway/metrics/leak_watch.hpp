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

/// Searches the nodes for leaked leases again and again, slowly, and keeps the latest report; what is new in it goes to
/// the log. Of a node that is away it keeps what the search before found.
///
/// Threads: latest() from any. Lifetime: stop() before the lock_manager stops.
class leak_watch {
  public:
    struct finding {
        lockcore::leak_report report;
        std::chrono::system_clock::time_point at;  ///< When the search ended.
    };

    /// `every` 0: never. Runs on `io`.
    leak_watch(lockcore::lock_manager& locks, std::chrono::milliseconds every, boost::asio::io_context& io)
        : locks_(locks), every_(every), io_(io), timer_(io) {}

    void start();
    /// Blocks until the search under way has ended; `io` must run, in another thread.
    void stop();
    /// Nothing before the first search has ended.
    std::optional<finding> latest() const;

  private:
    boost::asio::awaitable<void> run();
    void keep(lockcore::leak_report report);

    lockcore::lock_manager& locks_;
    const std::chrono::milliseconds every_;
    boost::asio::io_context& io_;
    boost::asio::steady_timer timer_;
    boost::asio::cancellation_signal cancel_;
    std::future<void> ended_;
    mutable std::mutex mutex_;
    std::optional<finding> latest_;
};

}  // namespace fencegate::metrics
