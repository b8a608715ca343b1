#include <runtime/turn_queue.hpp>

#include <gtest/gtest.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace lockcore {
namespace {

using namespace std::chrono_literals;
namespace asio = boost::asio;

class turn_queue_test : public testing::Test {
  protected:
    /// Starts a caller that keeps its turn for `work`, and then calls again `repeats` times.
    void call(const std::string& principal, int repeats = 0, std::chrono::milliseconds work = 2ms,
              std::chrono::milliseconds wait = 10s) {
        asio::co_spawn(io_, run(principal, repeats, work, wait), asio::detached);
    }
    asio::awaitable<void> run(std::string principal, int repeats, std::chrono::milliseconds work,
                              std::chrono::milliseconds wait) {
        for (int i = 0; i <= repeats; ++i) {
            auto turn = co_await queue_.take(principal, std::chrono::steady_clock::now() + wait);
            if (!turn) {
                refused_.push_back(principal);
                continue;
            }
            order_ += principal;
            EXPECT_EQ(++working_, 1);
            asio::steady_timer timer(io_, work);
            co_await timer.async_wait(asio::use_awaitable);
            --working_;
        }
    }

    asio::io_context io_;
    turn_queue queue_;
    int working_ = 0;
    std::string order_;
    std::vector<std::string> refused_;
};

TEST_F(turn_queue_test, principals_take_turns_however_often_one_calls) {
    for (int i = 0; i < 4; ++i)
        call("e", 3);
    call("v", 2);
    io_.run();
    EXPECT_EQ(order_.substr(0, 5), "eevev") << order_;
    EXPECT_GE(refused_.size(), 2U);
    EXPECT_EQ(queue_.waiting(), 0U);
}

TEST_F(turn_queue_test, second_waiting_caller_of_a_principal_is_refused) {
    call("a");
    call("a");
    call("a");
    io_.run();
    EXPECT_EQ(order_, "aa");
    EXPECT_EQ(refused_, std::vector<std::string>{"a"});
}

TEST_F(turn_queue_test, wait_ends_in_time_and_next_one_gets_the_turn) {
    call("a", 0, 60ms);
    call("b", 0, 1ms, 10ms);
    call("c");
    io_.run();
    EXPECT_EQ(order_, "ac");
    EXPECT_EQ(refused_, std::vector<std::string>{"b"});
    call("d");
    io_.restart();
    io_.run();
    EXPECT_EQ(order_, "acd");
}

TEST_F(turn_queue_test, more_than_waiting_max_are_refused) {
    call("first");
    for (std::size_t i = 0; i <= turn_queue::waiting_max; ++i)
        call("p" + std::to_string(i), 0, 0ms);
    io_.run();
    EXPECT_EQ(refused_, std::vector<std::string>{"p" + std::to_string(turn_queue::waiting_max)});
}

}  // namespace
}  // namespace lockcore
