#include <gateway/runtime/background.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <pthread.h>

#include <exception>
#include <string>
#include <utility>

namespace fencegate::runtime {

io_threads::io_threads(unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
        // The hint 1 tells Asio that one thread runs the context, which makes its queues cheaper. Posting from other
        // threads stays safe.
        contexts_.push_back(std::make_unique<context>(1));
        guards_.push_back(boost::asio::make_work_guard(*contexts_.back()));
    }
}

io_threads::~io_threads() {
    stop();
    for (const auto& each : contexts_)
        each->shutdown();
}

std::vector<boost::asio::io_context*> io_threads::contexts() const {
    std::vector<boost::asio::io_context*> out;
    for (const auto& each : contexts_)
        out.push_back(each.get());
    return out;
}

void io_threads::start() {
    for (std::size_t i = 0; i < contexts_.size(); ++i) {
        // An exception that reaches run() is a broken invariant. It ends the process, because the shard's state is
        // unknown.
        threads_.emplace_back([each = contexts_[i].get()] { each->run(); });
        const std::string name = "io-" + std::to_string(i);
        pthread_setname_np(threads_.back().native_handle(), name.c_str());
    }
}

void io_threads::stop() {
    guards_.clear();
    for (const auto& each : contexts_)
        each->stop();
    for (auto& thread : threads_)
        thread.join();
    threads_.clear();
}

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
