#pragma once

#include <boost/asio/any_completion_handler.hpp>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace lockcore {

/// Something that happens once and that one coroutine waits for. Firing never resumes the waiter inside the call: it is
/// posted.
///
/// Threads: not safe; waiter and firer are on one shard. Cancel: the wait itself takes no cancellation; what is waited
/// for is bounded in time.
class one_shot {
  public:
    bool fired() const { return fired_; }

    void fire() {
        if (std::exchange(fired_, true) || !waiter_) return;
        // Shared, because a posted function object must be copyable here; and moved into a new object, never assigned:
        // any_completion_handler's move assignment recurses for ever in Boost 1.81.
        auto waiter = std::make_shared<boost::asio::any_completion_handler<void()>>(std::move(*waiter_));
        waiter_.reset();
        boost::asio::post(executor_, [waiter] { std::move (*waiter)(); });
    }

    /// Must be awaited at most once, and only while not fired().
    boost::asio::awaitable<void> wait() {
        executor_ = co_await boost::asio::this_coro::executor;
        auto start = [this](auto handler) { waiter_.emplace(std::move(handler)); };
        co_await boost::asio::async_initiate<const boost::asio::use_awaitable_t<>, void()>(std::move(start),
                                                                                           boost::asio::use_awaitable);
    }

  private:
    bool fired_ = false;
    boost::asio::any_io_executor executor_;
    std::optional<boost::asio::any_completion_handler<void()>> waiter_;
};

}  // namespace lockcore
