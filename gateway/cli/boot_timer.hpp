#pragma once

#include <lockcore/types.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <chrono>
#include <functional>

namespace fencegate::cli {

using lockcore::boot_clock;

/// A timer on boot_clock, which also counts the time for which the machine is suspended. When the process was stopped
/// at the due time, the callback runs as soon as the process runs again.
class boot_timer {
  public:
    /// Throws std::system_error.
    explicit boot_timer(boost::asio::io_context& io);

    /// Calls `action` at `due`; replaces the time and action of an earlier call.
    void arm(boot_clock::time_point due, std::function<void()> action);

    void cancel();

  private:
    void await_expiry();

    boost::asio::posix::stream_descriptor timer_;  ///< A timerfd(2).
    std::function<void()> action_;
};

}  // namespace fencegate::cli
