// docs/protocol.md, "Named rules": what is done with leases that were given, and with several at once. As
// rules_test.cpp.
#include <proto/lease_record.hpp>
#include <proto/majority_round.hpp>

#include "paper/paper_nodes.hpp"

namespace lockcore {
namespace {

using fencegate::testing::call_of;
using fencegate::testing::caller;
using fencegate::testing::held_by;
using fencegate::testing::nonce_of;
using fencegate::testing::rules;
using kind = command_kind;
using status = reply_status;
using namespace std::chrono_literals;

constexpr std::uint64_t first_of_epoch_1 = tokens_per_epoch + 1;

std::size_t holds_in(const node_reply& reply) {
    hold_view view;
    view.add(reply.text);
    return view.count();
}

// --- RENEW

TEST_F(rules, renew_gives_more_time_under_the_same_token_and_counts) {
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

TEST_F(rules, renew_says_lost_without_effect_when_the_nonce_is_anothers) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('b', {r})).value, 1U);
    const std::string before = n0().all_keys();
    for (const kind k : {kind::renew, kind::hold, kind::inspect}) {
        EXPECT_EQ(n0().run(k, call_of('a', {r}), 1).status, status::lost);
        EXPECT_EQ(n0().all_keys(), before);
    }
}

TEST_F(rules, renew_says_lost_without_effect_when_the_token_is_another) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    ASSERT_EQ(n0().run(kind::confirm, call_of('a', {r}), 5).status, status::ok);
    const std::string before = n0().all_keys();
    for (const kind k : {kind::renew, kind::inspect}) {
        EXPECT_EQ(n0().run(k, call_of('a', {r}), 1).status, status::lost) << "older";
        EXPECT_EQ(n0().run(k, call_of('a', {r}), 6).status, status::lost) << "newer";
        EXPECT_EQ(n0().all_keys(), before);
    }
}

TEST_F(rules, renew_says_lost_without_effect_when_the_token_is_below_the_base) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    restart_from(0, remember(0, r));
    ASSERT_EQ(n0().admit(1), "OK");
    const std::string before = n0().all_keys();
    ASSERT_NE(n0().lease(r), "");
    for (const kind k : {kind::renew, kind::inspect}) {
        EXPECT_EQ(n0().run(k, call_of('a', {r}), 1).status, status::lost);
        EXPECT_EQ(n0().all_keys(), before);
    }
}

TEST_F(rules, renew_needs_a_majority_of_different_nodes) {
    caller a(nodes, call_of('a', {r}));
    a.ask(0);
    a.ask(1);
    ASSERT_TRUE(a.granted());
    const auto renewed_on = [&](std::initializer_list<std::size_t> those) {
        majority_round round(3);
        for (const std::size_t n : those)
            round.answered(static_cast<node_index>(n), nodes[n].run(kind::renew, a.call(), a.token()));
        return round.outcome();
    };
    EXPECT_EQ(renewed_on({0, 1}), majority_round::verdict::yes);
    EXPECT_EQ(renewed_on({0, 2}), majority_round::verdict::pending);
    nodes[1].run_out(r);
    EXPECT_EQ(renewed_on({0, 1, 2}), majority_round::verdict::lost);
}

TEST_F(rules, renew_says_exhausted_without_effect_when_it_was_renewed_as_often_as_allowed) {
    auto call = call_of('a', {r});
    call.renewals_max = 1;
    ASSERT_EQ(n0().run(kind::acquire, call).value, 1U);
    ASSERT_EQ(n0().run(kind::renew, call, 1).status, status::ok);
    const std::string before = n0().all_keys();
    EXPECT_EQ(n0().run(kind::renew, call, 1).status, status::exhausted);
    EXPECT_EQ(n0().all_keys(), before);
}

TEST_F(rules, renew_says_exhausted_without_effect_when_it_would_be_held_longer_than_allowed) {
    auto call = call_of('a', {r}, 10s);
    ASSERT_EQ(n0().run(kind::acquire, call).value, 1U);
    call.hold_max = 9s;
    const std::string before = n0().all_keys();
    for (const kind k : {kind::renew, kind::hold}) {
        EXPECT_EQ(n0().run(k, call, 1).status, status::exhausted);
        EXPECT_EQ(n0().all_keys(), before);
    }
}

TEST_F(rules, renew_never_cuts_the_time_that_is_left) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r}, 20s)).value, 1U);
    EXPECT_EQ(n0().run(kind::renew, call_of('a', {r}, 1s), 1).status, status::ok);
    EXPECT_GT(n0().time_left(r), 19'000) << "whoever was answered may count on it";
}

// --- RE-ENTRANT

TEST_F(rules, re_entrant_owner_is_told_of_its_own_lease_and_another_is_not) {
    const auto named = [&](char who, const std::string& owner) {
        auto call = call_of(who, {r});
        lease_claims claims;
        claims.resources = call.resources;
        claims.by = {"tests", owner};
        call.tail = lease_tail(claims, {call.ttl, 0, {}, {}, {}});
        return call;
    };
    ASSERT_EQ(n0().run(kind::acquire, named('a', "worker-7")).value, 1U);
    const node_reply own = n0().run(kind::acquire, named('b', "worker-7"));
    EXPECT_EQ(own.status, status::own);
    ASSERT_TRUE(lease_record::parse(own.text));
    EXPECT_EQ(lease_record::parse(own.text)->attempt, nonce_of('a'));
    EXPECT_EQ(n0().run(kind::acquire, named('c', "worker-77")).status, status::held);
    EXPECT_EQ(n0().run(kind::acquire, named('d', "worker-")).status, status::held);
    EXPECT_EQ(n0().run(kind::acquire, named('e', "")).status, status::held);
}

// Whoever asks with `kept` wants to be told of the end and puts its mark into the tail (lease_tail): it is still the
// same holder.
TEST_F(rules, re_entrant_owner_is_told_of_its_own_lease_when_it_asks_with_another_mark) {
    const auto marked = [&](char who, const char* mark) {
        auto call = call_of(who, {r});
        lease_claims claims;
        claims.resources = call.resources;
        claims.by = {"tests", "worker-7"};
        call.tail = lease_tail(claims, {call.ttl, 0, {}, {}, mark});
        return call;
    };
    for (const char* first : {"", "00000000000000aa"}) {
        ASSERT_EQ(n0().run(kind::acquire, marked('a', first)).status, status::ok);
        EXPECT_EQ(n0().run(kind::acquire, marked('b', "")).status, status::own) << "first '" << first << "'";
        EXPECT_EQ(n0().run(kind::acquire, marked('c', "00000000000000aa")).status, status::own);
        EXPECT_EQ(n0().run(kind::acquire, marked('d', "00000000000000bb")).status, status::own);
        n0().run_out(r);
    }
}

// --- TOP-UP

TEST_F(rules, top_up_puts_a_missing_lease_back_under_a_counter_not_below_the_token) {
    EXPECT_EQ(n0().run(kind::top_up, call_of('a', {r}), 5).value, 5U) << "the counter allows T: it counts";
    EXPECT_EQ(n0().token_of(r), "5");
    EXPECT_EQ(n0().counter(r), "5") << "never (nonce, T) without the counter";
    EXPECT_EQ(n0().run(kind::renew, call_of('a', {r}), 5).status, status::ok);
}

TEST_F(rules, top_up_blocks_but_does_not_count_when_the_counter_is_past_the_token) {
    n0().set_counter(r, 5);
    EXPECT_EQ(n0().run(kind::top_up, call_of('a', {r}), 5).value, 6U) << "5 was given there, to whomever";
    EXPECT_EQ(n0().counter(r), "6");
    EXPECT_EQ(n0().run(kind::renew, call_of('a', {r}), 5).status, status::lost);
    EXPECT_EQ(n0().run(kind::acquire, call_of('b', {r})).status, status::held);
}

TEST_F(rules, top_up_is_always_above_the_token_on_a_node_readmitted_after_forgetting) {
    restart(0);
    ASSERT_EQ(n0().admit(1), "OK");
    EXPECT_EQ(n0().run(kind::top_up, call_of('a', {r}), 5).value, first_of_epoch_1);
    EXPECT_EQ(n0().run(kind::renew, call_of('a', {r}), 5).status, status::lost);
}

TEST_F(rules, top_up_is_refused_without_effect_when_the_lease_is_anothers) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('b', {r})).value, 1U);
    const std::string before = n0().all_keys();
    EXPECT_EQ(n0().run(kind::top_up, call_of('a', {r}), 5).status, status::held);
    EXPECT_EQ(n0().all_keys(), before);
}

TEST_F(rules, top_up_leaves_token_and_counter_as_they_are_when_the_lease_is_there) {
    n0().set_counter(r, 7);
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 8U);
    EXPECT_EQ(n0().run(kind::top_up, call_of('a', {r}), 5).value, 8U) << "a late R1's counter, not T";
    EXPECT_EQ(n0().token_of(r), "8");
    EXPECT_EQ(n0().counter(r), "8");
}

// Its head: "it counts for the holder only if that is T". So it must not say T below the base. Nothing
// counts the answer, and renewing tests the base itself.
TEST_F(rules, top_up_never_answers_the_token_below_the_base) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    restart_from(0, remember(0, r));
    ASSERT_EQ(n0().admit(1), "OK");
    EXPECT_NE(n0().run(kind::top_up, call_of('a', {r}), 1).value, 1U);
    EXPECT_EQ(n0().run(kind::renew, call_of('a', {r}), 1).status, status::lost);
}

// --- HAND-OVER

TEST_F(rules, hand_over_takes_the_lease_from_the_nonce_it_names_under_the_next_counter) {
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

TEST_F(rules, hand_over_takes_a_free_resource_too_and_says_that_the_previous_lease_was_not_there) {
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

TEST_F(rules, hand_over_gives_one_hold_back_and_takes_nothing_when_holds_are_left) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    ASSERT_EQ(n0().run(kind::hold, held_by(a, 2), 1).status, status::ok);
    auto b = call_of('b', {r});
    b.previous = nonce_of('a');
    b.previous_hold = a.hold;
    for (int twice = 0; twice < 2; ++twice) {
        const node_reply kept = n0().run(kind::acquire, b);
        EXPECT_EQ(kept.status, status::kept);
        EXPECT_EQ(holds_in(kept), 1U);
    }
    EXPECT_EQ(n0().counter(r), "1");
    EXPECT_EQ(n0().run(kind::renew, a, 1).status, status::lost) << "it was given back";
    EXPECT_EQ(n0().run(kind::renew, held_by(a, 2), 1).status, status::ok);
    b.previous_hold = held_by(a, 2).hold;
    EXPECT_EQ(n0().run(kind::acquire, b).value, 2U) << "the last hold is handed over";
}

TEST_F(rules, hand_over_is_an_acquire_that_is_confirmed_like_any_other) {
    nodes[1].set_counter(r, 3);
    caller a(nodes, call_of('a', {r}));
    a.ask(0);
    a.ask(1);
    a.confirm_all();
    ASSERT_TRUE(a.granted());
    ASSERT_EQ(a.token(), 4U);
    nodes[1].set_counter(r, 6);
    auto call = call_of('b', {r});
    call.previous = nonce_of('a');
    call.previous_hold = call.hold;
    caller b(nodes, call);
    b.ask(0);
    b.ask(1);
    EXPECT_FALSE(b.granted()) << "5 and 7";
    b.confirm_all();
    EXPECT_TRUE(b.granted());
    EXPECT_EQ(b.token(), 7U);
}

// The marks of those who wait elsewhere go along with the lease. One's own mark is in the new lease's tail and among
// the old one's marks, and so is there once more after each hand-over; where sixteen marks stand no other waiter can
// leave one (R7: "tells waiters").
TEST_F(rules, hand_over_keeps_each_mark_once) {
    const auto marked = [&](char who) {
        auto call = call_of(who, {r});
        call.tail +=
            "\1"
            "00000000000000aa";
        return call;
    };
    ASSERT_EQ(n0().run(kind::acquire, marked('a')).status, status::ok);
    for (char who = 'b'; who < 'v'; ++who) {
        auto next = marked(who);
        next.previous = nonce_of(static_cast<char>(who - 1));
        next.previous_hold = next.hold;
        ASSERT_EQ(n0().run(kind::acquire, next).status, status::ok);
    }
    const std::string lease = n0().lease(r);
    EXPECT_EQ(lease.find('\1'), lease.rfind('\1')) << lease;
    auto waits = call_of('z', {r});
    waits.mark = "00000000000000ee";
    ASSERT_EQ(n0().run(kind::acquire, waits).status, status::held);
    EXPECT_NE(n0().lease(r).find("\1"
                                 "00000000000000ee"),
              std::string::npos)
        << "another gateway's waiter";
}

// --- SEVERAL RESOURCES

TEST_F(rules, several_resources_are_taken_all_or_none_on_a_node) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('x', {"b"})).value, 1U);
    const std::string before = n0().all_keys();
    EXPECT_EQ(n0().run(kind::acquire, call_of('a', {"a", "b", "c"})).status, status::held);
    EXPECT_EQ(n0().all_keys(), before);
    n0().run_out("b");
    EXPECT_EQ(n0().run(kind::acquire, call_of('a', {"a", "b", "c"})).status, status::ok);
}

TEST_F(rules, several_resources_get_one_token_above_every_counter_and_every_counter_is_set_to_it) {
    n0().set_counter("b", 6);
    n0().set_counter("c", 2);
    EXPECT_EQ(n0().run(kind::acquire, call_of('a', {"a", "b", "c"})).value, 7U);
    for (const char* one : {"a", "b", "c"}) {
        EXPECT_EQ(n0().counter(one), "7") << one;
        EXPECT_EQ(n0().token_of(one), "7") << one;
    }
}

TEST_F(rules, several_resources_are_confirmed_only_when_every_lease_is_the_callers) {
    const auto a = call_of('a', {"a", "b"});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    n0().run_out("b");
    const std::string before = n0().all_keys();
    EXPECT_EQ(n0().run(kind::confirm, a, 5).status, status::lost);
    EXPECT_EQ(n0().all_keys(), before);
}

TEST_F(rules, several_resources_are_confirmed_only_when_no_counter_is_past_the_token_and_all_are_set) {
    const auto a = call_of('a', {"a", "b"});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    n0().set_counter("b", 6);
    const std::string before = n0().all_keys();
    const node_reply past = n0().run(kind::confirm, a, 5);
    EXPECT_EQ(past.status, status::stale);
    EXPECT_EQ(past.value, 6U);
    EXPECT_EQ(n0().all_keys(), before);
    EXPECT_EQ(n0().run(kind::confirm, a, 8).status, status::ok);
    for (const char* one : {"a", "b"}) {
        EXPECT_EQ(n0().counter(one), "8") << one;
        EXPECT_EQ(n0().token_of(one), "8") << one;
    }
}

TEST_F(rules, several_resources_are_renewed_all_or_none) {
    const auto a = call_of('a', {"a", "b"}, 20s);
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {"a", "b"}, 2s)).value, 1U);
    n0().run_out("b");
    EXPECT_EQ(n0().run(kind::renew, a, 1).status, status::lost);
    EXPECT_EQ(n0().run(kind::inspect, a, 1).status, status::lost);
    EXPECT_LE(n0().time_left("a"), 2'000);
}

TEST_F(rules, several_resources_are_released_where_they_are_the_callers_also_if_one_is_not) {
    const auto a = call_of('a', {"a", "b"});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    n0().run_out("b");
    ASSERT_EQ(n0().run(kind::acquire, call_of('x', {"b"})).status, status::ok);
    EXPECT_EQ(n0().run(kind::release, a).status, status::lost) << "not all of it was the caller's";
    EXPECT_EQ(n0().lease("a"), "");
    EXPECT_NE(n0().lease("b"), "");
}

TEST_F(rules, several_resources_topped_up_get_one_token_above_every_counter) {
    const auto a = call_of('a', {"a", "b"});
    n0().set_counter("b", 6);
    EXPECT_EQ(n0().run(kind::top_up, a, 3).value, 7U);
    for (const char* one : {"a", "b"}) {
        EXPECT_EQ(n0().counter(one), "7") << one;
        EXPECT_EQ(n0().token_of(one), "7") << one;
    }
}

}  // namespace
}  // namespace lockcore
