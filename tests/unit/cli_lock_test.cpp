#include <gateway/cli/job_control.hpp>
#include <gateway/cli/lock_options.hpp>
#include <gateway/cli/tick.hpp>
#include <gateway/runtime/rfc3339.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <string>
#include <vector>

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

// A hostile gateway may send any time.
TEST(cli_tick, times_of_different_centuries_are_not_one_tick) {
    const auto first = *runtime::parse_rfc3339("1678-01-01T00:00:00Z");
    const auto last = *runtime::parse_rfc3339("2261-12-31T23:59:59Z");
    EXPECT_FALSE(is_same_tick(first, last, minutes(5)));
    EXPECT_FALSE(is_same_tick(last, first, minutes(5)));
    EXPECT_FALSE(is_same_tick(first, first + std::chrono::hours(24 * 365 * 200), minutes(5)));
}

/// A gateway that answers each request with the next of these responses.
struct scripted_gateway {
    std::vector<http_response> responses;
    std::vector<std::string> requests{};

    static boost::asio::awaitable<http_response> reply(http_response response) { co_return response; }

    /// Begins a tick of five minutes under the lease with the token 7, and returns the outcome.
    std::optional<lock_refusal> begin() {
        gateway_call call = [this](const http_request& request) {
            requests.push_back(request.method + " " + request.target);
            return reply(responses.at(requests.size() - 1));
        };
        std::optional<lock_refusal> out;
        boost::asio::io_context io;
        boost::asio::co_spawn(io, begin_tick(call, "jobs/a", 7, minutes(5)),
                              [&out](const std::exception_ptr& failed, std::optional<lock_refusal> refusal) {
                                  if (failed) std::rethrow_exception(failed);
                                  out = std::move(refusal);
                              });
        io.run();
        return out;
    }
};

http_response fences(const std::string& items) {
    return {200, "application/json", "{\"items\":[" + items + "],\"next_cursor\":null}"};
}

std::string fence(int token, const std::string& time) {
    return "{\"fencing_token\":" + std::to_string(token) + ",\"at\":\"2026-11-21T" + time + ".000Z\"}";
}

const http_response recorded{201, "application/json", R"({"lease_id":"x","fencing_token":8})"};
const http_response released{204, "", ""};

TEST(cli_tick, start_is_recorded_and_compared_with_the_last_one) {
    scripted_gateway gateway{{fences(fence(7, "10:05:00")), fences(fence(3, "10:00:02")), recorded,
                              fences(fence(8, "10:05:00") + "," + fence(3, "10:00:02")), released}};
    EXPECT_FALSE(gateway.begin());
    ASSERT_EQ(gateway.requests.size(), 5U);
    EXPECT_TRUE(gateway.requests[0].ends_with("resource=jobs%2Fa&token_min=7&token_max=7"));
    EXPECT_EQ(gateway.requests[1], "GET /v1/history?event=fence_raised&limit=2&resource=jobs%2Fa%40tick");
    EXPECT_EQ(gateway.requests[2], "POST /v1/leases");
    EXPECT_TRUE(gateway.requests[3].ends_with("&token_max=8"));
    EXPECT_EQ(gateway.requests[4], "DELETE /v1/leases/x");
}

TEST(cli_tick, started_tick_is_not_recorded_again) {
    scripted_gateway gateway{{fences(fence(7, "10:02:29")), fences(fence(3, "10:00:00"))}};
    const auto refusal = gateway.begin();
    ASSERT_TRUE(refusal && refusal->conflict);
    EXPECT_EQ(gateway.requests.size(), 2U);
}

TEST(cli_tick, start_recorded_by_another_machine_meanwhile_wins) {
    // This machine was suspended after it read the last start, and lost its lease.
    for (const std::string& after :
         {fence(8, "10:05:20") + "," + fence(6, "10:05:10"), fence(6, "10:05:10"), std::string()}) {
        scripted_gateway gateway{
            {fences(fence(7, "10:05:00")), fences(fence(3, "10:00:02")), recorded, fences(after), released}};
        const auto refusal = gateway.begin();
        EXPECT_TRUE(refusal && refusal->conflict) << after;
    }
    scripted_gateway first{{fences(fence(7, "10:05:00")), fences(""), recorded,
                            fences(fence(8, "10:05:20") + "," + fence(6, "10:05:10")), released}};
    EXPECT_TRUE(first.begin());
}

TEST(cli_tick, record_in_progress_or_failed_runs_nothing) {
    const std::vector<http_response> read{fences(fence(7, "10:05:00")), fences("")};
    scripted_gateway locked{{read[0], read[1], {423, "application/problem+json", "{}"}}};
    const auto other = locked.begin();
    EXPECT_TRUE(other && other->conflict);
    scripted_gateway failing{{read[0], read[1], {503, "application/problem+json", "{}"}}};
    const auto failed = failing.begin();
    EXPECT_TRUE(failed && !failed->conflict && failed->exit_code == 69);
    scripted_gateway forbidden{{{403, "application/problem+json", "{}"}}};
    EXPECT_EQ(forbidden.begin()->exit_code, exit_not_allowed);
    scripted_gateway without_own_fence{{fences("")}};
    EXPECT_EQ(without_own_fence.begin()->exit_code, 69);
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
