// Who waits at one manager for one resource, and when its head looks again.
#include <proto/wait_queue.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace lockcore {
namespace {

using namespace std::chrono_literals;

constexpr node_index node(std::size_t n) {
    return static_cast<node_index>(n);
}
const nonce one = nonce::from_bits(0, 1), two = nonce::from_bits(0, 2);
constexpr wait_queue::limits five_nodes{3, 2};

TEST(wait_queue, serves_in_order_of_arrival) {
    wait_queue q(five_nodes);
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

TEST(wait_queue, agrees_with_a_list_of_tickets_for_any_coming_and_going) {
    std::mt19937 random(5);
    wait_queue q(five_nodes);
    std::vector<wait_queue::ticket> twin;
    wait_queue::ticket last = 0;
    for (int i = 0; i < 20'000; ++i) {
        if (twin.empty() || random() % 2 == 0) {
            q.join(++last);
            twin.push_back(last);
        } else {
            const auto who = twin.begin() + static_cast<std::ptrdiff_t>(random() % twin.size());
            const bool head_left = who == twin.begin() && twin.size() > 1;
            EXPECT_EQ(q.leave(*who), head_left);
            twin.erase(who);
        }
        ASSERT_EQ(q.size(), twin.size());
        if (twin.empty()) continue;
        ASSERT_EQ(q.head(), twin.front());
        ASSERT_EQ(q.position(twin.back()), twin.size());
    }
}

TEST(wait_queue, sleeps_longer_after_each_refusal_up_to_a_bound) {
    wait_queue q(five_nodes);
    q.join(1);
    milliseconds longest{0};
    for (int i = 0; i < 100; ++i) {
        for (const std::uint64_t chance : {std::uint64_t{0}, std::uint64_t{7}, ~std::uint64_t{0}}) {
            wait_queue copy = q;
            const milliseconds sleep = copy.refused(0ms, chance);
            EXPECT_GE(sleep, 2ms);
            EXPECT_LE(sleep, wait_queue::look_again);
            longest = std::max(longest, sleep);
        }
        q.refused(0ms, 0);
    }
    EXPECT_GE(longest, wait_queue::look_again / 2);
    EXPECT_GE(q.refused(0ms, 0), wait_queue::look_again / 2);
}

TEST(wait_queue, starts_with_a_short_sleep_and_doubles_it) {
    wait_queue q(five_nodes);
    q.join(1);
    milliseconds half = wait_queue::look_first / 2;
    for (; half < wait_queue::look_again / 2; half *= 2)
        EXPECT_EQ(q.refused(0ms, 0), half) << "without jitter, half of it";
}

TEST(wait_queue, looks_again_when_the_holders_time_is_over_if_that_comes_first) {
    wait_queue q(five_nodes);
    q.join(1);
    for (int i = 0; i < 10; ++i)
        q.refused(0ms, 0);
    for (std::uint64_t chance = 0; chance < 20; ++chance) {
        const milliseconds sleep = q.refused(30ms, chance);
        EXPECT_GT(sleep, 30ms) << "not a moment before";
        EXPECT_LE(sleep, 34ms);
    }
    EXPECT_LE(q.refused(10s, 0), wait_queue::look_again) << "or earlier: a message may be lost";
}

// A lease without an end (acquire: "-1 = never") is told as the longest time there is; the sum overflows, the head
// would not sleep at all.
TEST(wait_queue, sleeps_also_when_the_holders_time_never_ends) {
    wait_queue q(five_nodes);
    q.join(1);
    EXPECT_GE(q.refused(milliseconds::max(), 0), 2ms);
}

TEST(wait_queue, lets_the_head_look_at_once_when_a_majority_told_that_the_lease_ended) {
    wait_queue q(five_nodes);
    q.join(1);
    EXPECT_EQ(q.told(node(0), one), wait_queue::rest_of_majority);
    EXPECT_EQ(q.told(node(0), one), wait_queue::rest_of_majority) << "the same node again";
    EXPECT_EQ(q.told(node(3), one), wait_queue::rest_of_majority);
    EXPECT_EQ(q.told(node(4), one), 0ms);
}

TEST(wait_queue, does_not_add_up_what_nodes_tell_of_different_leases) {
    wait_queue q(five_nodes);
    q.join(1);
    q.told(node(0), one);
    q.told(node(1), one);
    EXPECT_EQ(q.told(node(2), two), wait_queue::rest_of_majority);
    EXPECT_EQ(q.told(node(0), two), wait_queue::rest_of_majority);
    EXPECT_EQ(q.told(node(1), two), 0ms);
}

TEST(wait_queue, does_not_count_messages_from_before_a_refusal) {
    wait_queue q(five_nodes);
    q.join(1);
    q.told(node(0), one);
    q.told(node(1), one);
    q.refused(100ms, 0);
    EXPECT_EQ(q.told(node(2), one), wait_queue::rest_of_majority);
}

TEST(wait_queue, sleeps_shortly_again_after_somebody_told_of_an_end_or_the_head_changed) {
    const auto refused_often = [] {
        wait_queue q(five_nodes);
        q.join(1);
        q.join(2);
        for (int i = 0; i < 10; ++i)
            q.refused(0ms, 0);
        return q;
    };
    wait_queue told = refused_often();
    told.told(node(0), one);
    EXPECT_EQ(told.refused(0ms, 0), wait_queue::look_first / 2);
    wait_queue next = refused_often();
    next.leave(1);
    EXPECT_EQ(next.refused(0ms, 0), wait_queue::look_first / 2);
    wait_queue given = refused_often();
    given.given_back(false);
    EXPECT_EQ(given.refused(0ms, 0), wait_queue::look_first / 2);
    wait_queue another_left = refused_often();
    another_left.leave(2);
    EXPECT_GE(another_left.refused(0ms, 0), wait_queue::look_again / 2);
}

TEST(wait_queue, takes_over_as_often_running_as_it_may_and_then_gives_others_their_turn) {
    wait_queue q(five_nodes);
    q.join(1);
    for (int turn = 0; turn < 3; ++turn) {
        EXPECT_TRUE(q.takes_over());
        EXPECT_TRUE(q.takes_over());
        EXPECT_FALSE(q.takes_over()) << "handoff_max is 2";
        EXPECT_FALSE(q.takes_over());
        EXPECT_EQ(q.given_back(true), wait_queue::others_first);
    }
    EXPECT_EQ(q.given_back(false), 0ms) << "nobody waits elsewhere";
}

TEST(wait_queue, counts_on_where_the_queue_before_it_ended) {
    wait_queue q(five_nodes, 1);
    q.join(1);
    EXPECT_TRUE(q.takes_over());
    EXPECT_EQ(q.handed_over(), 2);
    EXPECT_FALSE(q.takes_over()) << "handoff_max is 2";
    q.given_back(false);
    EXPECT_EQ(q.handed_over(), 0);
}

TEST(wait_queue, takes_nothing_over_when_nobody_waits_or_it_may_never) {
    EXPECT_FALSE(wait_queue(five_nodes).takes_over());
    wait_queue never({3, 0});
    never.join(1);
    EXPECT_FALSE(never.takes_over());
}

}  // namespace
}  // namespace lockcore
