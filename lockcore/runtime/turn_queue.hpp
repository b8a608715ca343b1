#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <utility>

namespace lockcore {

/// Lets one caller proceed at a time; the others wait in order. Of each principal one caller waits at most, so that
/// principals take turns, however often one of them calls.
///
/// Threads:  one.
/// Lifetime: it outlives its turns.
/// Limits:   waiting_max callers wait.
class turn_queue {
  public:
    static constexpr std::size_t waiting_max = 100;

    /// The turn of a caller. The destructor gives it to the next caller.
    class turn {
      public:
        explicit turn(turn_queue& queue) : queue_(&queue) {}
        turn(turn&& other) noexcept : queue_(std::exchange(other.queue_, nullptr)) {}
        turn& operator=(turn&&) = delete;
        ~turn() {
            if (queue_ != nullptr) queue_->pass_on();
        }

      private:
        turn_queue* queue_;
    };

    /// Waits for the caller's turn until `until`.
    ///
    /// Out:    empty: a caller of this principal waits already, too many callers wait, or the time is over.
    /// Cancel: as at the end of the time.
    boost::asio::awaitable<std::optional<turn>> take(std::string principal,
                                                     std::chrono::steady_clock::time_point until);
    std::size_t waiting() const { return waiting_.size(); }

  private:
    struct waiting_caller {
        std::string principal;
        boost::asio::steady_timer timer;
        bool has_turn = false;
    };
    class queued_caller;
    void pass_on();

    bool taken_ = false;
    std::list<waiting_caller*> waiting_;
};

}  // namespace lockcore
