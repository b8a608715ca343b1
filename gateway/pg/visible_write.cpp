#include <gateway/pg/visible_write.hpp>
#include <gateway/pg/waiting_job.hpp>

#include <boost/asio/use_awaitable.hpp>

#include <utility>

namespace fencegate::pg {

namespace asio = boost::asio;

void disk_wait::answer(std::optional<failure> why) {
    if (answered_.exchange(true)) return;
    failure_ = std::move(why);
    bell_.try_send(boost::system::error_code());
}

void disk_wait::give_up(bool) noexcept {
    // Whatever was cut: it was committed, and may have reached the disk.
    answer(silent_failure(false));
}

asio::awaitable<std::optional<failure>> disk_wait::wait() {
    co_await bell_.async_receive(asio::use_awaitable);
    co_return std::move(failure_);
}

asio::awaitable<result<write_outcome>> when_on_disk(visible_write seen) {
    if (seen.disk) {
        auto why = co_await seen.disk->wait();
        if (why) co_return std::move(*why);
    }
    co_return std::move(seen.outcome);
}

}  // namespace fencegate::pg
