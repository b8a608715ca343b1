#include <gateway/runtime/background.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <exception>
#include <utility>

namespace fencegate::runtime {

void run_in_background(boost::asio::any_io_executor executor, boost::asio::awaitable<void> work) {
    boost::asio::co_spawn(std::move(executor), std::move(work), [](std::exception_ptr error) {
        if (error) std::rethrow_exception(error);
    });
}

void periodic::start(boost::asio::any_io_executor executor, duration first_pause) {
    run_in_background(std::move(executor), repeat(shared_from_this(), first_pause));
}

boost::asio::awaitable<void> periodic::repeat(std::shared_ptr<periodic> self, duration pause) {
    boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor);
    for (;;) {
        timer.expires_after(pause);
        co_await timer.async_wait(boost::asio::use_awaitable);
        if (self->stopping_) co_return;
        pause = co_await self->run_once();
    }
}

}  // namespace fencegate::runtime
