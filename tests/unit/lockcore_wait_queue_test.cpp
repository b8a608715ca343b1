// The queue of waiters of one manager for one resource, and when its head tries again.
#include "node_number.hpp"

#include <proto/wait_queues.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace lockcore {
namespace {

using namespace std::chrono_literals;

const nonce first_lease = nonce::from_bits(0, 1), second_lease = nonce::from_bits(0, 2);
constexpr wait_queue::limits limits_of_five_nodes{3, 2};

TEST(wait_queue, serves_in_order_of_arrival) {
    wait_queue q(limits_of_five_nodes);
    for (const wait_queue::ticket t : {11U, 12U, 15U})
        q.join(t);
    EXPECT_EQ(q.head(), 11U);
    EXPECT_EQ(q.position(11), 1U);
    EXPECT_EQ(q.position(15), 3U);
    EXPECT_TRUE(q.leave(11)) << "the next one is to try at once";
    EXPECT_EQ(q.head(), 12U);
    EXPECT_FALSE(q.leave(15)) << "nobody became the head by that";
    EXPECT_FALSE(q.leave(12)) << "there is no next one";
    EXPECT_TRUE(q.empty());
}

TEST(wait_queue, agrees_with_a_plain_list_for_random_joins_and_leaves) {
    std::mt19937 random(5);
    wait_queue q(limits_of_five_nodes);
    std::vector<wait_queue::ticket> expected;
    wait_queue::ticket last = 0;
    for (int i = 0; i < 20'000; ++i) {
        if (expected.empty() || random() % 2 == 0) {
            q.join(++last);
            expected.push_back(last);
        } else {
            const auto leaving = expected.begin() + static_cast<std::ptrdiff_t>(random() % expected.size());
            const bool head_left = leaving == expected.begin() && expected.size() > 1;
            EXPECT_EQ(q.leave(*leaving), head_left);
            expected.erase(leaving);
        }
        ASSERT_EQ(q.size(), expected.size());
        if (expected.empty()) continue;
        ASSERT_EQ(q.head(), expected.front());
        ASSERT_EQ(q.position(expected.back()), expected.size());
    }
}

TEST(wait_queue, sleeps_longer_after_each_refusal_up_to_a_bound) {
    wait_queue q(limits_of_five_nodes);
    q.join(1);
    milliseconds longest{0};
    for (int i = 0; i < 100; ++i) {
        for (const std::uint64_t chance : {std::uint64_t{0}, std::uint64_t{7}, ~std::uint64_t{0}}) {
            wait_queue copy = q;
            const milliseconds sleep = copy.delay_after_refusal(0ms, chance);
            EXPECT_GE(sleep, 2ms);
            EXPECT_LE(sleep, wait_queue::retry_delay_max);
            longest = std::max(longest, sleep);
        }
        q.delay_after_refusal(0ms, 0);
    }
    EXPECT_GE(longest, wait_queue::retry_delay_max / 2);
    EXPECT_GE(q.delay_after_refusal(0ms, 0), wait_queue::retry_delay_max / 2);
}

TEST(wait_queue, starts_with_a_short_sleep_and_doubles_it) {
    wait_queue q(limits_of_five_nodes);
    q.join(1);
    milliseconds half = wait_queue::retry_delay_min / 2;
    for (; half < wait_queue::retry_delay_max / 2; half *= 2)
        EXPECT_EQ(q.delay_after_refusal(0ms, 0), half) << "without jitter, half of it";
}

TEST(wait_queue, retries_when_the_holders_time_is_over_if_earlier) {
    wait_queue q(limits_of_five_nodes);
    q.join(1);
    for (int i = 0; i < 10; ++i)
        q.delay_after_refusal(0ms, 0);
    for (std::uint64_t chance = 0; chance < 20; ++chance) {
        const milliseconds sleep = q.delay_after_refusal(30ms, chance);
        EXPECT_GT(sleep, 30ms) << "not a moment before";
        EXPECT_LE(sleep, 34ms);
    }
    EXPECT_LE(q.delay_after_refusal(10s, 0), wait_queue::retry_delay_max) << "or earlier: a message may be lost";
}

// A lease without an end (acquire: "-1 = never") has the longest possible remaining time. If the sum overflowed, the
// head would not sleep at all.
TEST(wait_queue, lease_without_end_still_sleeps) {
    wait_queue q(limits_of_five_nodes);
    q.join(1);
    EXPECT_GE(q.delay_after_refusal(milliseconds::max(), 0), 2ms);
}

TEST(wait_queue, end_reported_by_a_majority_head_retries_at_once) {
    wait_queue q(limits_of_five_nodes);
    q.join(1);
    EXPECT_EQ(q.delay_after_end_of_lease(node(0), first_lease), wait_queue::majority_grace);
    EXPECT_EQ(q.delay_after_end_of_lease(node(0), first_lease), wait_queue::majority_grace) << "the same node again";
    EXPECT_EQ(q.delay_after_end_of_lease(node(3), first_lease), wait_queue::majority_grace);
    EXPECT_EQ(q.delay_after_end_of_lease(node(4), first_lease), 0ms);
}

TEST(wait_queue, reports_about_different_leases_do_not_add_up) {
    wait_queue q(limits_of_five_nodes);
    q.join(1);
    q.delay_after_end_of_lease(node(0), first_lease);
    q.delay_after_end_of_lease(node(1), first_lease);
    EXPECT_EQ(q.delay_after_end_of_lease(node(2), second_lease), wait_queue::majority_grace);
    EXPECT_EQ(q.delay_after_end_of_lease(node(0), second_lease), wait_queue::majority_grace);
    EXPECT_EQ(q.delay_after_end_of_lease(node(1), second_lease), 0ms);
}

TEST(wait_queue, does_not_count_messages_from_before_a_refusal) {
    wait_queue q(limits_of_five_nodes);
    q.join(1);
    q.delay_after_end_of_lease(node(0), first_lease);
    q.delay_after_end_of_lease(node(1), first_lease);
    q.delay_after_refusal(100ms, 0);
    EXPECT_EQ(q.delay_after_end_of_lease(node(2), first_lease), wait_queue::majority_grace);
}

TEST(wait_queue, sleep_is_short_again_after_a_report_or_a_new_head) {
    const auto refused_often = [] {
        wait_queue q(limits_of_five_nodes);
        q.join(1);
        q.join(2);
        for (int i = 0; i < 10; ++i)
            q.delay_after_refusal(0ms, 0);
        return q;
    };
    wait_queue after_report = refused_often();
    after_report.delay_after_end_of_lease(node(0), first_lease);
    EXPECT_EQ(after_report.delay_after_refusal(0ms, 0), wait_queue::retry_delay_min / 2);
    wait_queue next = refused_often();
    next.leave(1);
    EXPECT_EQ(next.delay_after_refusal(0ms, 0), wait_queue::retry_delay_min / 2);
    wait_queue given = refused_often();
    given.delay_after_release(false);
    EXPECT_EQ(given.delay_after_refusal(0ms, 0), wait_queue::retry_delay_min / 2);
    wait_queue another_left = refused_often();
    another_left.leave(2);
    EXPECT_GE(another_left.delay_after_refusal(0ms, 0), wait_queue::retry_delay_max / 2);
}

TEST(wait_queue, hands_over_up_to_the_limit_then_lets_others_acquire) {
    wait_queue q(limits_of_five_nodes);
    for (wait_queue::ticket t = 1; t <= 4; ++t)
        q.join(t);
    for (wait_queue::ticket turn = 1; turn <= 3; ++turn) {
        EXPECT_TRUE(q.begin_handoff());
        q.leave(turn);
        EXPECT_TRUE(q.begin_handoff());
        EXPECT_FALSE(q.begin_handoff()) << "handoff_max is 2";
        EXPECT_FALSE(q.begin_handoff());
        EXPECT_EQ(q.delay_after_release(true), wait_queue::yield_time);
    }
    EXPECT_EQ(q.delay_after_release(false), 0ms) << "nobody waits elsewhere";
}

TEST(wait_queue, continues_the_count_of_the_previous_queue) {
    wait_queue q(limits_of_five_nodes, 1);
    q.join(1);
    EXPECT_TRUE(q.begin_handoff());
    EXPECT_EQ(q.handed_over(), 2);
    EXPECT_FALSE(q.begin_handoff()) << "handoff_max is 2";
    q.delay_after_release(false);
    EXPECT_EQ(q.handed_over(), 0);
}

TEST(wait_queue, shared_requests_at_the_head_contend_together) {
    using tickets = std::vector<wait_queue::ticket>;
    wait_queue q(limits_of_five_nodes);
    for (const wait_queue::ticket t : {1U, 2U, 4U})
        q.join(t, true);
    EXPECT_EQ(q.contenders(), (tickets{1, 2, 4}));
    q.join(3);
    EXPECT_EQ(q.contenders(), (tickets{1, 2})) << "up to the first exclusive one";
    EXPECT_FALSE(q.contends(3));
    EXPECT_FALSE(q.contends(4));
    q.leave(1);
    q.leave(2);
    EXPECT_EQ(q.contenders(), (tickets{3})) << "an exclusive one contends alone";
    q.leave(3);
    EXPECT_EQ(q.contenders(), (tickets{4}));
}

TEST(wait_queue, no_hand_over_without_waiters_or_when_disabled) {
    EXPECT_FALSE(wait_queue(limits_of_five_nodes).begin_handoff());
    wait_queue never({3, 0});
    never.join(1);
    EXPECT_FALSE(never.begin_handoff());
}

}  // namespace
}  // namespace lockcore
