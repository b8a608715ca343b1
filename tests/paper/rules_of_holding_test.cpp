// docs/protocol.md, "Named rules": operations on granted leases, and leases on several resources. See rules_test.cpp.
#include <lockcore/config.hpp>
#include <proto/lease_record.hpp>
#include <proto/majority_round.hpp>

#include "paper/admitted_nodes.hpp"

#include <algorithm>
#include <limits>
#include <thread>

namespace lockcore {
namespace {

using fencegate::testing::call_of;
using fencegate::testing::call_of_owner;
using fencegate::testing::count_holds;
using fencegate::testing::nonce_of;
using fencegate::testing::rules;
using fencegate::testing::stepwise_attempt;
using fencegate::testing::with_hold;
using kind = command_kind;
using status = reply_status;
using namespace std::chrono_literals;

// --- RENEW

TEST_F(rules, renew_extends_time_under_same_token_and_counts_renewals) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r}, 1s)).value, 1U);
    const node_reply renewed = n0().run(kind::renew, call_of('a', {r}, 20s), 1);
    EXPECT_EQ(renewed.status, status::ok);
    EXPECT_EQ(renewed.value, 1U);
    EXPECT_GT(n0().time_left(r), 19'000);
    EXPECT_EQ(n0().token_of(r), "1");
    EXPECT_EQ(n0().counter(r), "1");
}

TEST_F(rules, renew_never_creates_a_lease) {
    for (const kind k : {kind::renew, kind::hold}) {
        EXPECT_EQ(n0().run(k, call_of('a', {r}), 1).status, status::lost);
        EXPECT_EQ(n0().all_keys(), "");
    }
}

TEST_F(rules, renew_says_lost_without_effect_when_the_nonce_differs) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('b', {r})).value, 1U);
    const std::string before = n0().all_keys();
    for (const kind k : {kind::renew, kind::hold, kind::inspect}) {
        EXPECT_EQ(n0().run(k, call_of('a', {r}), 1).status, status::lost);
        EXPECT_EQ(n0().all_keys(), before);
    }
}

TEST_F(rules, renew_says_lost_without_effect_when_the_token_differs) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    ASSERT_EQ(n0().run(kind::confirm, call_of('a', {r}), 5).status, status::ok);
    const std::string before = n0().all_keys();
    for (const kind k : {kind::renew, kind::inspect}) {
        EXPECT_EQ(n0().run(k, call_of('a', {r}), 1).status, status::lost) << "older";
        EXPECT_EQ(n0().run(k, call_of('a', {r}), 6).status, status::lost) << "newer";
        EXPECT_EQ(n0().all_keys(), before);
    }
}

TEST_F(rules, renew_says_lost_without_effect_when_token_is_below_base) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    restart_with_state(0, save_state(0, r));
    ASSERT_EQ(n0().admit(1), "OK");
    const std::string before = n0().all_keys();
    ASSERT_NE(n0().lease(r), "");
    for (const kind k : {kind::renew, kind::inspect}) {
        EXPECT_EQ(n0().run(k, call_of('a', {r}), 1).status, status::lost);
        EXPECT_EQ(n0().all_keys(), before);
    }
}

TEST_F(rules, renew_needs_a_majority_of_different_nodes) {
    stepwise_attempt a(nodes, call_of('a', {r}));
    a.acquire_on(0);
    a.acquire_on(1);
    ASSERT_TRUE(a.is_granted());
    const auto renewed_on = [&](std::initializer_list<std::size_t> asked_nodes) {
        majority_round round(3);
        for (const std::size_t n : asked_nodes)
            round.answered(static_cast<node_index>(n), nodes[n].run(kind::renew, a.call(), a.token()));
        return round.outcome();
    };
    EXPECT_EQ(renewed_on({0, 1}), majority_round::verdict::yes);
    EXPECT_EQ(renewed_on({0, 2}), majority_round::verdict::pending);
    nodes[1].expire_lease(r);
    EXPECT_EQ(renewed_on({0, 1, 2}), majority_round::verdict::lost);
}

TEST_F(rules, renew_says_exhausted_when_renewals_reach_their_limit) {
    auto call = call_of('a', {r});
    call.renewals_max = 1;
    ASSERT_EQ(n0().run(kind::acquire, call).value, 1U);
    ASSERT_EQ(n0().run(kind::renew, call, 1).status, status::ok);
    const std::string before = n0().all_keys();
    EXPECT_EQ(n0().run(kind::renew, call, 1).status, status::exhausted);
    EXPECT_EQ(n0().all_keys(), before);
}

TEST_F(rules, renew_says_exhausted_when_hold_time_reaches_its_limit) {
    auto call = call_of('a', {r}, 10s);
    ASSERT_EQ(n0().run(kind::acquire, call).value, 1U);
    call.hold_max = 9s;
    const std::string before = n0().all_keys();
    for (const kind k : {kind::renew, kind::hold}) {
        EXPECT_EQ(n0().run(k, call, 1).status, status::exhausted);
        EXPECT_EQ(n0().all_keys(), before);
    }
}

// A late ACQUIRE of a lease that TOP-UP has put here and RENEW has extended, which others count on.
TEST_F(rules, r1_late_acquire_never_shortens_the_own_lease) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r}, 30s)).status, status::ok);
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r}, 1s)).status, status::ok);
    EXPECT_GT(n0().time_left(r), 20'000);
}

// The lease is here already, put back by TOP-UP with the hold of another caller and a short ttl.
TEST_F(rules, r1_late_acquire_adds_its_hold_and_extends_the_time) {
    const auto a = call_of('a', {r}, 20s);
    ASSERT_EQ(n0().run(kind::top_up, with_hold(call_of('a', {r}, 1s), 2), 1).status, status::ok);
    ASSERT_EQ(n0().run(kind::acquire, a).value, 2U);
    EXPECT_GT(n0().time_left(r), 19'000) << "the attempt counts on it from now on";
    EXPECT_EQ(count_holds(n0().run(kind::inspect, a, 2)), 2U);
    ASSERT_EQ(count_holds(n0().run(kind::release, a)), 1U);
    ASSERT_EQ(n0().run(kind::acquire, a).value, 3U) << "later still";
    EXPECT_EQ(n0().run(kind::release, with_hold(a, 2)).status, status::ok);
    EXPECT_EQ(n0().lease(r), "") << "the hold of the attempt was released before";
}

TEST_F(rules, top_up_of_a_lease_at_its_end_is_no_error) {
    EXPECT_EQ(n0().run(kind::top_up, call_of('a', {r}, 0ms), 1).status, status::ok);
    EXPECT_LE(n0().time_left(r), 1);
}

TEST_F(rules, renew_adds_up_the_time_for_which_the_lease_is_held) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    milliseconds held{0};
    for (int i = 0; i < 3; ++i) {
        std::this_thread::sleep_for(20ms);  // the time held is what is tested
        const node_reply renewed = n0().run(kind::renew, a, 1);
        EXPECT_GE(renewed.held, held + 19ms);
        held = renewed.held;
    }
}

// A kept lease is renewed without a limit, and a lease has nine digits for the renewals.
TEST_F(rules, renew_counts_to_nine_digits_and_no_further) {
    auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    std::string text = n0().lease(r);
    text.replace(text.find(" 0 "), 3, " 999999998 ");
    n0().command({"SET", "fg:lease:" + std::string(r), text, "PX", "20000"});
    a.renewals_max = std::numeric_limits<std::uint32_t>::max();
    for (int i = 0; i < 2; ++i) {
        const node_reply renewed = n0().run(kind::renew, a, 1);
        ASSERT_EQ(renewed.status, status::ok);
        EXPECT_EQ(renewed.value, renewals_counted);
    }
}

TEST_F(rules, renew_never_shortens_the_remaining_time) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r}, 20s)).value, 1U);
    EXPECT_EQ(n0().run(kind::renew, call_of('a', {r}, 1s), 1).status, status::ok);
    EXPECT_GT(n0().time_left(r), 19'000) << "a caller that was answered may rely on that time";
}

// --- RE-ENTRANT

TEST_F(rules, re_entrant_acquire_says_own_to_the_same_owner_only) {
    ASSERT_EQ(n0().run(kind::acquire, call_of_owner('a', {r}, "worker-7")).value, 1U);
    const node_reply own = n0().run(kind::acquire, call_of_owner('b', {r}, "worker-7"));
    EXPECT_EQ(own.status, status::own);
    ASSERT_TRUE(lease_record::parse(own.text));
    EXPECT_EQ(lease_record::parse(own.text)->attempt_id, nonce_of('a'));
    EXPECT_EQ(n0().run(kind::acquire, call_of_owner('c', {r}, "worker-77")).status, status::held);
    EXPECT_EQ(n0().run(kind::acquire, call_of_owner('d', {r}, "worker-")).status, status::held);
    EXPECT_EQ(n0().run(kind::acquire, call_of_owner('e', {r}, "")).status, status::held);
}

// A kept lease has its gateway's mark in its tail (lease_tail), which must not make it the lease of another holder.
TEST_F(rules, re_entrant_acquire_says_own_whatever_the_mark) {
    const std::string owner = "worker-7";
    for (const char* first : {"", "00000000000000aa"}) {
        ASSERT_EQ(n0().run(kind::acquire, call_of_owner('a', {r}, owner, first)).status, status::ok);
        EXPECT_EQ(n0().run(kind::acquire, call_of_owner('b', {r}, owner, "")).status, status::own)
            << "first '" << first << "'";
        EXPECT_EQ(n0().run(kind::acquire, call_of_owner('c', {r}, owner, "00000000000000aa")).status, status::own);
        EXPECT_EQ(n0().run(kind::acquire, call_of_owner('d', {r}, owner, "00000000000000bb")).status, status::own);
        n0().expire_lease(r);
    }
}

// --- HAND-OVER

TEST_F(rules, hand_over_takes_lease_of_named_nonce_with_next_counter) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    auto b = call_of('b', {r});
    b.previous = nonce_of('a');
    b.previous_hold = call_of('a', {r}).hold;
    const node_reply taken = n0().run(kind::acquire, b);
    EXPECT_EQ(taken.status, status::ok);
    EXPECT_EQ(taken.value, 2U);
    EXPECT_TRUE(taken.took_over) << "the previous lease was there";
    EXPECT_EQ(n0().run(kind::renew, call_of('a', {r}), 1).status, status::lost);
    EXPECT_EQ(n0().run(kind::renew, call_of('b', {r}), 2).status, status::ok);
}

TEST_F(rules, hand_over_takes_free_resource_and_says_nothing_taken_over) {
    auto b = call_of('b', {r});
    b.previous = nonce_of('a');
    b.previous_hold = call_of('a', {r}).hold;
    const node_reply taken = n0().run(kind::acquire, b);
    EXPECT_EQ(taken.status, status::ok);
    EXPECT_FALSE(taken.took_over);
}

TEST_F(rules, hand_over_is_held_when_a_third_has_the_lease) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('c', {r})).value, 1U);
    const std::string before = n0().all_keys();
    auto b = call_of('b', {r});
    b.previous = nonce_of('a');
    EXPECT_EQ(n0().run(kind::acquire, b).status, status::held);
    EXPECT_EQ(n0().all_keys(), before);
}

TEST_F(rules, hand_over_releases_one_hold_when_other_holds_are_left) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    ASSERT_EQ(n0().run(kind::hold, with_hold(a, 2), 1).status, status::ok);
    auto b = call_of('b', {r});
    b.previous = nonce_of('a');
    b.previous_hold = a.hold;
    for (int repetition = 0; repetition < 2; ++repetition) {
        const node_reply kept = n0().run(kind::acquire, b);
        EXPECT_EQ(kept.status, status::other_holds);
        EXPECT_EQ(count_holds(kept), 1U);
    }
    EXPECT_EQ(n0().counter(r), "1");
    EXPECT_EQ(n0().run(kind::renew, a, 1).status, status::lost) << "this hold was released";
    EXPECT_EQ(n0().run(kind::renew, with_hold(a, 2), 1).status, status::ok);
    b.previous_hold = with_hold(a, 2).hold;
    EXPECT_EQ(n0().run(kind::acquire, b).value, 2U) << "the last hold is handed over";
}

TEST_F(rules, hand_over_is_confirmed_like_any_acquire) {
    nodes[1].set_counter(r, 3);
    stepwise_attempt a(nodes, call_of('a', {r}));
    a.acquire_on(0);
    a.acquire_on(1);
    a.deliver_all_confirms();
    ASSERT_TRUE(a.is_granted());
    ASSERT_EQ(a.token(), 4U);
    nodes[1].set_counter(r, 6);
    auto call = call_of('b', {r});
    call.previous = nonce_of('a');
    call.previous_hold = call.hold;
    stepwise_attempt b(nodes, call);
    b.acquire_on(0);
    b.acquire_on(1);
    EXPECT_FALSE(b.is_granted()) << "5 and 7";
    b.deliver_all_confirms();
    EXPECT_TRUE(b.is_granted());
    EXPECT_EQ(b.token(), 7U);
}

// A hand-over copies the marks of the previous lease to the next one, whose tail may have the same mark. If it were
// stored again at each hand-over, sixteen hand-overs would leave no space for the mark of another gateway (R7).
TEST_F(rules, hand_over_keeps_each_mark_once) {
    const auto call_with_mark = [&](char letter) {
        auto call = call_of(letter, {r});
        call.tail +=
            "\1"
            "00000000000000aa";
        return call;
    };
    ASSERT_EQ(n0().run(kind::acquire, call_with_mark('a')).status, status::ok);
    for (char letter = 'b'; letter < 'v'; ++letter) {
        auto next = call_with_mark(letter);
        next.previous = nonce_of(static_cast<char>(letter - 1));
        next.previous_hold = next.hold;
        ASSERT_EQ(n0().run(kind::acquire, next).status, status::ok);
    }
    const std::string lease = n0().lease(r);
    EXPECT_EQ(lease.find('\1'), lease.rfind('\1')) << lease;
    auto waiting_call = call_of('z', {r});
    waiting_call.wake_mark = "00000000000000ee";
    ASSERT_EQ(n0().run(kind::acquire, waiting_call).status, status::held);
    EXPECT_NE(n0().lease(r).find("\1"
                                 "00000000000000ee"),
              std::string::npos)
        << "another gateway's waiter";
}

// --- WAKE MARKS

TEST_F(rules, wake_marks_of_sixteen_gateways_are_kept) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    for (int i = 10; i < 30; ++i) {
        auto waiting_call = call_of('b', {r});
        waiting_call.wake_mark = std::string(14, '0') + std::to_string(i);
        ASSERT_EQ(n0().run(kind::acquire, waiting_call).status, status::held);
    }
    const std::string lease = n0().lease(r);
    EXPECT_EQ(std::ranges::count(lease, '\1'), 16);
    EXPECT_EQ(n0().run(kind::renew, call_of('a', {r}), 1).status, status::ok) << "it is a lease still";
}

TEST_F(rules, wake_mark_of_the_caller_is_not_notified) {
    auto subscriber = n0();
    subscriber.connect();
    ASSERT_EQ(subscriber.command({"SUBSCRIBE", "fg:wake:00000000000000ee"}), "subscribe fg:wake:00000000000000ee 1");
    auto a = call_of('a', {r}), waiting_call = call_of('b', {r});
    a.wake_mark = waiting_call.wake_mark = "00000000000000ee";
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    ASSERT_EQ(n0().run(kind::acquire, waiting_call).status, status::held);
    EXPECT_EQ(n0().run(kind::release, a).notified_waiters, 0U) << "its gateway knows of the release";
}

}  // namespace
}  // namespace lockcore
