#pragma once

#include <boost/asio/any_completion_handler.hpp>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace lockcore {

/// An event that happens once, and that one coroutine may await. fire() posts the coroutine; it never resumes it inside
/// the call.
///
/// Threads: not safe; fire() and wait() run on the thread of one shard.
/// Cancel:  wait() cannot be cancelled; every event fires within a limited time.
class one_shot_event {
  public:
    bool has_fired() const { return fired_; }

    void fire() {
        if (std::exchange(fired_, true) || !waiter_) return;
        // Shared, for a posted function object must be copyable here. Constructed and not assigned, for the move
        // assignment of any_completion_handler recurses without end in Boost 1.81.
        auto waiter = std::make_shared<boost::asio::any_completion_handler<void()>>(std::move(*waiter_));
        waiter_.reset();
        boost::asio::post(executor_, [waiter] { std::move (*waiter)(); });
    }

    /// Waits until the event fires. May be called once, and only while has_fired() is false.
    boost::asio::awaitable<void> wait() {
        executor_ = co_await boost::asio::this_coro::executor;
        // Without a cancellation slot of its own, the handler leaves that of the coroutine to others (shard::call).
        auto start = [this](auto handler) {
            waiter_.emplace(boost::asio::bind_cancellation_slot(boost::asio::cancellation_slot(), std::move(handler)));
        };
        co_await boost::asio::async_initiate<const boost::asio::use_awaitable_t<>, void()>(std::move(start),
                                                                                           boost::asio::use_awaitable);
    }

  private:
    bool fired_ = false;
    boost::asio::any_io_executor executor_;
    std::optional<boost::asio::any_completion_handler<void()>> waiter_;
};

}  // namespace lockcore
