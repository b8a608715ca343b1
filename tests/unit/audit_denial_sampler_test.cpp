#include <gateway/audit/denial_recorder.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

using fencegate::audit::denial_sampler;
using namespace std::chrono_literals;

namespace {

using group = denial_sampler::group;
using left_out = denial_sampler::left_out;

const denial_sampler::time_point first_denial{std::chrono::seconds(1'700'000'000)};

group of_principal(const std::string& name, const std::string& problem = "forbidden") {
    return {name, "", problem, 403};
}

group of_address(const std::string& address) {
    return {"", address, "unauthenticated", 401};
}

std::uint64_t admitted(denial_sampler& sampler, const group& denied, int count,
                       denial_sampler::time_point at = first_denial) {
    std::uint64_t out = 0;
    for (int i = 0; i < count; ++i)
        out += sampler.admit(denied, at) ? 1 : 0;
    return out;
}

/// Ends the windows that are over at `now`, and returns what was left out.
std::vector<left_out> ended(denial_sampler& sampler, denial_sampler::time_point now) {
    std::vector<left_out> out;
    sampler.end_windows(now, [&out](const left_out& rest) {
        out.push_back(rest);
        return true;
    });
    return out;
}

}  // namespace

TEST(denial_sampler, first_of_each_caller_and_problem_are_stored) {
    denial_sampler sampler;
    EXPECT_EQ(admitted(sampler, of_principal("a"), 100), denial_sampler::stored_max);
    EXPECT_EQ(admitted(sampler, of_principal("b"), 2), 2u);
    EXPECT_EQ(admitted(sampler, of_principal("a", "too-many-requests"), 100), denial_sampler::stored_max);
    EXPECT_EQ(admitted(sampler, of_address("10.0.0.1"), 100), denial_sampler::stored_max);
}

TEST(denial_sampler, window_ends_with_the_count_of_the_rest) {
    denial_sampler sampler;
    admitted(sampler, of_principal("a"), 5);
    admitted(sampler, of_principal("a"), 2, first_denial + 10s);
    admitted(sampler, of_principal("a"), 1, first_denial + 30s);
    admitted(sampler, of_principal("b"), 1);
    EXPECT_TRUE(ended(sampler, first_denial + 59s).empty());
    const auto rest = ended(sampler, first_denial + 60s);
    ASSERT_EQ(rest.size(), 1u);
    EXPECT_EQ(rest[0].denied.principal, "a");
    EXPECT_EQ(rest[0].count, 3u);
    EXPECT_EQ(rest[0].from, first_denial + 10s);
    EXPECT_EQ(rest[0].to, first_denial + 30s);
    EXPECT_EQ(admitted(sampler, of_principal("a"), 9, first_denial + 61s), denial_sampler::stored_max)
        << "a new window";
}

TEST(denial_sampler, clock_that_is_set_back_ends_windows) {
    denial_sampler sampler;
    admitted(sampler, of_principal("a"), 6);
    EXPECT_EQ(ended(sampler, first_denial - 1h).size(), 1u);
}

TEST(denial_sampler, count_that_cannot_be_stored_is_kept) {
    denial_sampler sampler;
    admitted(sampler, of_principal("a"), 7);
    sampler.leave_out(of_principal("a"), first_denial);
    sampler.end_windows(first_denial + 60s, [](const left_out&) { return false; });
    EXPECT_EQ(admitted(sampler, of_principal("a"), 4, first_denial + 61s), 0u);
    const auto rest = ended(sampler, first_denial + 62s);
    ASSERT_EQ(rest.size(), 1u);
    EXPECT_EQ(rest[0].count, 7u);
}

TEST(denial_sampler, all_windows_end_on_request) {
    denial_sampler sampler;
    admitted(sampler, of_principal("a"), 6);
    EXPECT_TRUE(ended(sampler, first_denial).empty());
    EXPECT_EQ(ended(sampler, denial_sampler::time_point::max()).size(), 1u);
    EXPECT_TRUE(ended(sampler, denial_sampler::time_point::max()).empty());
}

TEST(denial_sampler, many_addresses_share_one_window_and_hide_nobody) {
    denial_sampler sampler;
    std::uint64_t stored = 0;
    constexpr int addresses = 10'000;
    for (int i = 0; i < addresses; ++i)
        stored += admitted(sampler, of_address("10.0." + std::to_string(i / 250) + "." + std::to_string(i % 250)), 1);
    EXPECT_EQ(stored, denial_sampler::groups_max + denial_sampler::stored_max);
    EXPECT_EQ(admitted(sampler, of_principal("a"), 1), 1u)
        << "callers that are authenticated have windows of their own";
    const auto rest = ended(sampler, first_denial + 60s);
    ASSERT_EQ(rest.size(), 1u);
    EXPECT_EQ(rest[0].denied.address, "");
    EXPECT_EQ(rest[0].denied.problem, "unauthenticated");
    EXPECT_EQ(rest[0].count, addresses - stored);
}
