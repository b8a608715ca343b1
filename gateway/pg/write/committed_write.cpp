#include <gateway/pg/write/committed_write.hpp>

#include <boost/asio/use_awaitable.hpp>

#include <utility>

namespace fencegate::pg {

namespace asio = boost::asio;

void durability_waiter::answer(std::optional<failure> why) {
    if (answered_.exchange(true)) return;
    failure_ = std::move(why);
    signal_.try_send(boost::system::error_code());
}

void durability_waiter::give_up(bool) noexcept {
    // The write was committed, so it may have reached the disk.
    answer(unresponsive_failure(false));
}

asio::awaitable<std::optional<failure>> durability_waiter::wait() {
    co_await signal_.async_receive(asio::use_awaitable);
    co_return std::move(failure_);
}

asio::awaitable<result<write_outcome>> await_durable(committed_write write) {
    if (write.durability) {
        auto why = co_await write.durability->wait();
        if (why) co_return std::move(*why);
    }
    co_return std::move(write.outcome);
}

}  // namespace fencegate::pg
