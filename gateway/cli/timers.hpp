#pragma once

#include <gateway/cli/lock_options.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace fencegate::cli {

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

/// The longest time for which a command may hold its lease: announces its end to the user, and ends the command shortly
/// before, so that it has time to end while the lease is held.
class hold_limit {
  public:
    /// `end_hold` is called with the reason.
    hold_limit(boost::asio::io_context& io, const lock_options& options,
               std::function<void(const std::string&)> end_hold);

    /// Returns the refusal of a command that may run for longer than the gateway allows; 0: it did not say for how
    /// long.
    std::optional<lock_refusal> check(std::chrono::milliseconds of_gateway) const;
    /// Begins to count, from `granted_at`, when the gateway sent the lease.
    void begin(boot_clock::time_point granted_at, std::chrono::milliseconds of_gateway);
    /// Lets the hold end at `end` at the latest. `refusal`: why, if the gateway has refused to renew the lease.
    void shorten(boot_clock::time_point end, const std::string& refusal);
    void cancel() { timer_.cancel(); }

    /// Returns the ttl for the next renewal: `ttl`, but not beyond the end of the hold.
    std::chrono::milliseconds limit(std::chrono::milliseconds ttl) const;
    /// The command has to have ended by then.
    boot_clock::time_point end() const { return end_; }

  private:
    void arm();

    const lock_options& options_;
    std::function<void(const std::string&)> end_hold_;
    boot_timer timer_;
    std::chrono::milliseconds longest_ = std::chrono::milliseconds::max();
    boot_clock::time_point end_ = boot_clock::time_point::max();
    std::string refusal_;
    bool counting_ = false;
    bool announced_ = false;
};

}  // namespace fencegate::cli
