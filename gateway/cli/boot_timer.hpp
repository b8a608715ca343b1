#pragma once

#include <lockcore/boot_clock.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <chrono>
#include <functional>

namespace fencegate::cli {

using lockcore::boot_clock;

/// Calls back at a time of boot_clock, or as soon as this process runs again behind it.
class boot_timer {
  public:
    /// Throws std::system_error.
    explicit boot_timer(boost::asio::io_context& io);

    /// In place of what it was armed for before.
    void arm(boot_clock::time_point at, std::function<void()> action);

    void cancel();

  private:
    void wait();

    boost::asio::posix::stream_descriptor timer_;  ///< A timerfd.
    std::function<void()> action_;
};

}  // namespace fencegate::cli
