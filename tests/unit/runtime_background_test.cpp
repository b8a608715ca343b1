#include <gateway/runtime/background.hpp>

#include <gtest/gtest.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <chrono>
#include <memory>
#include <stdexcept>

namespace fencegate::runtime {
namespace {

namespace asio = boost::asio;

/// A loop as those of the gateway: it ends with an exception after three rounds, or without one.
asio::awaitable<void> run_loop(int& rounds, bool throws) {
    while (rounds < 3) {
        co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
        ++rounds;
    }
    if (throws) throw std::runtime_error("a broken invariant");
}

TEST(run_in_background, exception_of_loop_ends_run_of_io_context) {
    asio::io_context io;
    int rounds = 0;
    run_in_background(io.get_executor(), run_loop(rounds, true));
    try {
        io.run();
        ADD_FAILURE() << "the exception was swallowed";
    } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "a broken invariant");
    }
    EXPECT_EQ(rounds, 3);
}

TEST(run_in_background, loop_that_ends_by_itself_lets_run_return) {
    asio::io_context io;
    int rounds = 0;
    run_in_background(io.get_executor(), run_loop(rounds, false));
    EXPECT_NO_THROW(io.run());
    EXPECT_EQ(rounds, 3);
}

/// Counts the contexts that are not destroyed.
struct context_count final : asio::execution_context::service {
    using key_type = context_count;
    explicit context_count(asio::execution_context& owner) : service(owner) { ++contexts; }
    ~context_count() override { --contexts; }
    void shutdown() override {}

    static inline asio::execution_context::id id{};
    static inline int contexts = 0;
};

TEST(io_threads, handlers_destroyed_before_any_context) {
    int destroyed = 0;
    {
        io_threads threads(2);
        for (auto* context : threads.contexts()) {
            asio::use_service<context_count>(*context);
            const std::shared_ptr<void> owned(nullptr, [&destroyed](void*) {
                ++destroyed;
                EXPECT_EQ(context_count::contexts, 2) << "it may belong to any of them";
            });
            asio::post(*context, [owned] {});
        }
    }
    EXPECT_EQ(destroyed, 2);
}

/// Counts its runs, and stops after three.
struct counter final : periodic {
    asio::awaitable<duration> run_once() override {
        if (++runs == 3) stop();
        co_return std::chrono::milliseconds{runs};
    }
    int runs = 0;
};

TEST(periodic, work_is_repeated_until_it_is_stopped) {
    asio::io_context io;
    const auto work = std::make_shared<counter>();
    const auto begun = std::chrono::steady_clock::now();
    work->start(io.get_executor(), std::chrono::milliseconds{10});
    EXPECT_NO_THROW(io.run());
    EXPECT_EQ(work->runs, 3);
    EXPECT_GE(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds{10 + 1 + 2 + 3});
}

TEST(periodic, work_that_is_stopped_before_does_not_run) {
    asio::io_context io;
    const auto work = std::make_shared<counter>();
    work->start(io.get_executor(), std::chrono::milliseconds{0});
    work->stop();
    EXPECT_NO_THROW(io.run());
    EXPECT_EQ(work->runs, 0);
}

}  // namespace
}  // namespace fencegate::runtime
