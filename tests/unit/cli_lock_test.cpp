#include <gateway/cli/lock_signals.hpp>
#include <gateway/cli/tick.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

TEST(cli_tick, starts_within_half_of_period_are_one_tick) {
    const std::chrono::system_clock::time_point start{std::chrono::hours(500'000)};
    EXPECT_TRUE(is_same_tick(start, start, minutes(5)));
    EXPECT_TRUE(is_same_tick(start, start + seconds(149), minutes(5)));
    EXPECT_FALSE(is_same_tick(start, start + seconds(150), minutes(5)));
    EXPECT_FALSE(is_same_tick(start, start + minutes(5), minutes(5)));
    EXPECT_FALSE(is_same_tick(start, start + minutes(5) - seconds(7), minutes(5)));
}

TEST(cli_tick, clock_that_was_set_back_does_not_stop_the_schedule) {
    const std::chrono::system_clock::time_point start{std::chrono::hours(500'000)};
    EXPECT_TRUE(is_same_tick(start, start - seconds(1), minutes(5)));
    EXPECT_FALSE(is_same_tick(start, start - minutes(3), minutes(5)));
}

TEST(cli_lock_signals, all_that_can_be_caught_are_forwarded) {
    const auto forwarded = forwarded_signals();
    for (const int number :
         {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGALRM, SIGABRT, SIGRTMIN, SIGRTMAX})
        EXPECT_EQ(std::ranges::count(forwarded, number), 1) << number;
    for (const int number : {SIGKILL, SIGSTOP, SIGCHLD, SIGCONT, SIGTSTP, SIGPIPE, SIGSEGV, SIGRTMIN - 1})
        EXPECT_EQ(std::ranges::count(forwarded, number), 0) << number;
}

TEST(cli_lock_signals, only_signals_that_end_a_process_end_the_wait) {
    EXPECT_TRUE(ends_by_default(SIGUSR1) && ends_by_default(SIGINT) && ends_by_default(SIGRTMIN));
    EXPECT_FALSE(ends_by_default(SIGWINCH) || ends_by_default(SIGURG));
    EXPECT_TRUE(is_end_request(SIGQUIT) && !is_end_request(SIGUSR1));
}

}  // namespace
}  // namespace fencegate::cli
