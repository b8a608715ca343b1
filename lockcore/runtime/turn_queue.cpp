#include <runtime/turn_queue.hpp>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>

namespace lockcore {
namespace asio = boost::asio;

/// A caller in the queue. The destructor leaves it, or passes on a turn that was given to it and that it does not take.
class turn_queue::queued_caller {
  public:
    queued_caller(turn_queue& queue, waiting_caller caller) : queue_(queue), caller_(std::move(caller)) {
        queue_.waiting_.push_back(&caller_);
    }
    ~queued_caller() {
        if (caller_.has_turn) {
            queue_.pass_on();
        } else {
            queue_.waiting_.remove(&caller_);
        }
    }
    queued_caller(const queued_caller&) = delete;
    queued_caller& operator=(const queued_caller&) = delete;

    asio::steady_timer& timer() { return caller_.timer; }
    /// Out: whether the caller has the turn, which it then has to pass on itself.
    bool claim_turn() {
        if (!caller_.has_turn) return false;
        caller_.has_turn = false;
        return true;
    }

  private:
    turn_queue& queue_;
    waiting_caller caller_;
};

asio::awaitable<std::optional<turn_queue::turn>> turn_queue::take(std::string principal,
                                                                  std::chrono::steady_clock::time_point until) {
    if (!std::exchange(taken_, true)) co_return turn(*this);
    if (waiting_.size() >= waiting_max ||
        std::ranges::find(waiting_, principal, &waiting_caller::principal) != waiting_.end())
        co_return std::nullopt;
    asio::steady_timer timer(co_await asio::this_coro::executor, until);
    queued_caller queued(*this, {std::move(principal), std::move(timer)});
    boost::system::error_code ignored;
    co_await queued.timer().async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    if (!queued.claim_turn()) co_return std::nullopt;
    co_return turn(*this);
}

void turn_queue::pass_on() {
    taken_ = !waiting_.empty();
    if (!taken_) return;
    waiting_caller& next = *waiting_.front();
    waiting_.pop_front();
    next.has_turn = true;
    next.timer.cancel();
}

}  // namespace lockcore
