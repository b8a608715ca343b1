#include <gateway/runtime/background.hpp>

#include <gtest/gtest.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <stdexcept>

namespace fencegate::runtime {
namespace {

namespace asio = boost::asio;

/// A loop as those of the gateway: it ends with an exception after three turns, or without one.
asio::awaitable<void> run_loop(int& turns, bool throws) {
    while (turns < 3) {
        co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
        ++turns;
    }
    if (throws) throw std::runtime_error("a broken invariant");
}

TEST(run_in_background, exception_of_loop_ends_run_of_io_context) {
    asio::io_context io;
    int turns = 0;
    run_in_background(io.get_executor(), run_loop(turns, true));
    try {
        io.run();
        ADD_FAILURE() << "the exception was swallowed";
    } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "a broken invariant");
    }
    EXPECT_EQ(turns, 3);
}

TEST(run_in_background, loop_that_ends_by_itself_lets_run_return) {
    asio::io_context io;
    int turns = 0;
    run_in_background(io.get_executor(), run_loop(turns, false));
    EXPECT_NO_THROW(io.run());
    EXPECT_EQ(turns, 3);
}

}  // namespace
}  // namespace fencegate::runtime
