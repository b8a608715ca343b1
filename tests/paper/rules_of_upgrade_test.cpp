// docs/protocol.md, TOP-UP and UPGRADE, and the stamp of a lease on a node. See rules_test.cpp.
#include <proto/lease_record.hpp>

#include "paper/admitted_nodes.hpp"

namespace lockcore {
namespace {

using fencegate::testing::call_of;
using fencegate::testing::call_of_owner;
using fencegate::testing::count_holds;
using fencegate::testing::rules;
using fencegate::testing::with_hold;
using kind = command_kind;
using status = reply_status;
using namespace std::chrono_literals;

constexpr std::uint64_t base_of_epoch_1 = tokens_per_epoch;

/// Returns the same call for a TOP-UP of a caller that was answered this stamp.
template <class Call>
Call with_seen(Call call, const std::string& stamp) {
    call.seen = stamp;
    return call;
}

constexpr kind kinds_that_need_the_token[] = {kind::renew, kind::hold, kind::inspect};

// --- TOP-UP

TEST_F(rules, top_up_puts_lease_back_with_counter_not_below_token) {
    const node_reply restored = n0().run(kind::top_up, call_of('a', {r}), 5);
    EXPECT_EQ(restored.value, 5U);
    EXPECT_TRUE(restored.counts) << "the counter is not above T";
    EXPECT_EQ(n0().stamp_of(r), "5");
    EXPECT_EQ(n0().counter(r), "5") << "the counter is set with the lease";
    EXPECT_GT(n0().time_left(r), 29'000);
    EXPECT_EQ(n0().run(kind::renew, call_of('a', {r}), 5).status, status::ok);
}

TEST_F(rules, top_up_blocks_but_does_not_count_when_counter_is_higher) {
    n0().set_counter(r, 5);
    const node_reply restored = n0().run(kind::top_up, call_of('a', {r}), 5);
    EXPECT_EQ(restored.status, status::ok);
    EXPECT_EQ(restored.value, 6U) << "the node has given 5 before";
    EXPECT_FALSE(restored.counts);
    EXPECT_EQ(n0().counter(r), "6");
    EXPECT_EQ(n0().stamp_of(r), "6:0") << "it has no token yet";
    for (const std::uint64_t token : {5U, 6U})
        EXPECT_EQ(n0().run(kind::renew, call_of('a', {r}), token).status, status::lost) << token;
    EXPECT_EQ(n0().run(kind::acquire, call_of('b', {r})).status, status::held);
}

TEST_F(rules, top_up_on_readmitted_node_answers_above_the_token) {
    restart(0);
    ASSERT_EQ(n0().admit(1), "OK");
    const node_reply restored = n0().run(kind::top_up, call_of('a', {r}), 5);
    EXPECT_EQ(restored.value, base_of_epoch_1 + 1);
    EXPECT_FALSE(restored.counts);
    EXPECT_EQ(n0().run(kind::renew, call_of('a', {r}), 5).status, status::lost);
}

TEST_F(rules, top_up_is_refused_without_effect_when_another_holds_it) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('b', {r})).value, 1U);
    const std::string before = n0().all_keys();
    for (const char* seen : {"", "1"}) {
        EXPECT_EQ(n0().run(kind::top_up, with_seen(call_of('a', {r}), seen), 5).status, status::held);
        EXPECT_EQ(n0().all_keys(), before);
    }
}

TEST_F(rules, top_up_keeps_a_lease_that_counts_whatever_stamp_was_seen) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r}, 20s)).value, 1U);
    n0().set_counter(r, 7);  // another resource of the bucket
    for (const char* seen : {"", "0", "1", "7"}) {
        n0().command({"PEXPIRE", "fg:lease:" + r, "20000"});
        const node_reply kept = n0().run(kind::top_up, with_seen(call_of('a', {r}), seen), 1);
        EXPECT_EQ(kept.value, 1U) << seen;
        EXPECT_TRUE(kept.counts) << seen;
        EXPECT_EQ(n0().stamp_of(r), "1") << seen;
        EXPECT_EQ(n0().counter(r), "7") << seen;
        EXPECT_GT(n0().time_left(r), 29'000) << "it counts for a renewal that lasts so long; " << seen;
    }
    ASSERT_TRUE(n0().run(kind::top_up, call_of('a', {r}, 1s), 1).counts);
    EXPECT_GT(n0().time_left(r), 28'000);
}

TEST_F(rules, top_up_does_not_count_below_the_base) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    restart_with_state(0, save_state(0, r));
    ASSERT_EQ(n0().admit(1), "OK");
    for (const char* seen : {"", "1"}) {
        const node_reply kept = n0().run(kind::top_up, with_seen(call_of('a', {r}), seen), 1);
        EXPECT_EQ(kept.value, base_of_epoch_1);
        EXPECT_FALSE(kept.counts) << "its stamp is below the base, though it has the token";
    }
    EXPECT_EQ(n0().run(kind::renew, call_of('a', {r}), 1).status, status::lost);
}

TEST_F(rules, top_up_needs_a_number_of_the_epoch_and_upgrade_does_not) {
    n0().set_counter(r, tokens_per_epoch - 1);
    EXPECT_EQ(n0().run(kind::top_up, call_of('a', {r}), 5).status, status::overflow);
    EXPECT_EQ(n0().lease(r), "");
    n0().command({"SET", "fg:lease:" + r,
                  std::string(call_of('a', {r}).attempt_id.str()) + " 7:0 " + call_of('a', {r}).tail, "PX", "30000"});
    const node_reply upgraded = n0().run(kind::top_up, with_seen(call_of('a', {r}), "7"), 5);
    EXPECT_EQ(upgraded.value, tokens_per_epoch - 1);
    EXPECT_TRUE(upgraded.counts);
}

// --- the stamp: State, RENEW, HOLD, INSPECT

TEST_F(rules, stamp_is_written_with_a_token_only_where_they_differ) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    EXPECT_EQ(n0().stamp_of(r), "1");
    ASSERT_EQ(n0().run(kind::confirm, a, 5).status, status::ok);
    EXPECT_EQ(n0().stamp_of(r), "5");
    n0().expire_lease(r);
    ASSERT_EQ(n0().run(kind::top_up, a, 5).value, 6U);
    EXPECT_EQ(n0().stamp_of(r), "6:0");
    ASSERT_TRUE(n0().run(kind::top_up, with_seen(a, "6"), 5).counts);
    EXPECT_EQ(n0().stamp_of(r), "6:5");
    ASSERT_EQ(n0().run(kind::renew, a, 5).status, status::ok);
    ASSERT_EQ(n0().run(kind::hold, with_hold(a, 2), 5).status, status::ok);
    ASSERT_EQ(n0().run(kind::release, with_hold(a, 2)).status, status::ok);
    auto closing = a;
    closing.close_mark = "00000000000000c1";
    ASSERT_EQ(n0().run(kind::close, closing).status, status::ok);
    EXPECT_EQ(n0().stamp_of(r), "6:5") << "every other script keeps both";
    ASSERT_EQ(n0().run(kind::confirm, a, 7).status, status::ok);
    EXPECT_EQ(n0().stamp_of(r), "7") << "CONFIRM writes both";
    ASSERT_EQ(n0().run(kind::acquire, a).value, 8U);
    EXPECT_EQ(n0().stamp_of(r), "8");
}

TEST_F(rules, stamp_of_a_lease_that_does_not_count_is_answered) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    ASSERT_EQ(n0().run(kind::confirm, a, 5).status, status::ok);
    for (const kind k : kinds_that_need_the_token) {
        const std::string before = n0().all_keys();
        const node_reply other_token = n0().run(k, a, 4);
        EXPECT_EQ(other_token.status, status::lost);
        EXPECT_TRUE(other_token.has_stamp) << static_cast<int>(k);
        EXPECT_EQ(other_token.value, 5U);
        if (k != kind::hold) {  // HOLD adds its id
            EXPECT_EQ(n0().all_keys(), before);
        }
    }
    restart_with_state(0, save_state(0, r));
    ASSERT_EQ(n0().admit(1), "OK");
    for (const kind k : kinds_that_need_the_token) {
        const node_reply below_base = n0().run(k, a, 5);
        EXPECT_EQ(below_base.status, status::lost);
        EXPECT_TRUE(below_base.has_stamp) << static_cast<int>(k);
        EXPECT_EQ(below_base.value, base_of_epoch_1) << "each admission changes the number";
    }
}

TEST_F(rules, stamp_is_answered_whatever_the_limits_of_the_lease) {
    auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    a.renewals_max = 0;
    a.hold_max = 1s;
    for (const kind k : kinds_that_need_the_token) {
        EXPECT_TRUE(n0().run(k, a, 5).has_stamp) << static_cast<int>(k);
    }
}

TEST_F(rules, stamp_is_not_answered_where_the_lease_or_hold_is_gone) {
    const auto a = call_of('a', {r});
    for (const kind k : kinds_that_need_the_token) {
        EXPECT_FALSE(n0().run(k, a, 5).has_stamp) << "there is none";
    }
    ASSERT_EQ(n0().run(kind::acquire, call_of('b', {r})).value, 1U);
    for (const kind k : kinds_that_need_the_token) {
        EXPECT_FALSE(n0().run(k, a, 5).has_stamp) << "another's";
    }
    n0().expire_lease(r);
    ASSERT_EQ(n0().run(kind::acquire, a).value, 2U);
    ASSERT_EQ(n0().run(kind::hold, with_hold(a, 2), 2).status, status::ok);
    ASSERT_EQ(n0().run(kind::release, with_hold(a, 2)).status, status::ok);
    const std::string before = n0().all_keys();
    for (const kind k : kinds_that_need_the_token) {
        const node_reply released = n0().run(k, with_hold(a, 2), 5);
        EXPECT_EQ(released.status, status::lost);
        EXPECT_FALSE(released.has_stamp) << "this id was released; " << static_cast<int>(k);
        EXPECT_EQ(n0().all_keys(), before);
    }
}

TEST_F(rules, stamp_of_several_resources_is_one_or_the_lease_is_missing) {
    const auto ab = call_of('a', {"a", "b"});
    ASSERT_EQ(n0().run(kind::acquire, ab).value, 1U);
    for (const kind k : kinds_that_need_the_token) {
        EXPECT_TRUE(n0().run(k, ab, 5).has_stamp) << static_cast<int>(k);
    }
    const std::string nonce(ab.attempt_id.str());
    n0().command({"SET", "fg:lease:b", nonce + " 2:1 " + ab.tail, "PX", "30000"});
    for (const kind k : kinds_that_need_the_token) {
        const node_reply differing = n0().run(k, ab, 1);
        EXPECT_EQ(differing.status, status::lost) << "both have the token, but not one stamp";
        EXPECT_FALSE(differing.has_stamp) << static_cast<int>(k);
    }
    n0().expire_lease("b");
    for (const kind k : kinds_that_need_the_token) {
        EXPECT_FALSE(n0().run(k, ab, 5).has_stamp) << static_cast<int>(k);
    }
}

TEST_F(rules, stamp_or_token_the_higher_is_answered_to_others) {
    const std::string head = std::string(call_of('a', {r}).attempt_id.str()) + ' ';
    for (const char* stamp : {"9", "9:0", "9:5", "0:9"}) {
        n0().command({"SET", "fg:lease:" + r, head + stamp + ' ' + call_of('a', {r}).tail, "PX", "30000"});
        const node_reply held = n0().run(kind::acquire, call_of('b', {r}));
        EXPECT_EQ(held.status, status::held);
        EXPECT_EQ(held.value, 9U) << stamp << ", so that the next hint is above both";
    }
}

TEST_F(rules, stamp_and_token_are_kept_in_the_answers_of_look_and_own) {
    const std::string text =
        std::string(call_of_owner('a', {r}).attempt_id.str()) + " 6:5 " + call_of_owner('a', {r}).tail;
    n0().command({"SET", "fg:lease:" + r, text, "PX", "30000"});
    for (const kind k : {kind::look, kind::acquire}) {
        const node_reply answer = n0().run(k, call_of_owner('b', {r}));
        EXPECT_EQ(answer.text, text);
        const auto record = lease_record::parse(answer.text);
        ASSERT_TRUE(record);
        EXPECT_EQ(record->stamp, 6U);
        EXPECT_EQ(record->token, fencing_token{5});
    }
    EXPECT_EQ(n0().run(kind::release, call_of_owner('a', {r})).status, status::ok);
    EXPECT_EQ(n0().lease(r), "");
}

// --- UPGRADE

TEST_F(rules, upgrade_makes_the_lease_count_with_a_stamp_of_its_own) {
    const auto a = call_of('a', {r});
    n0().set_counter(r, 5);
    ASSERT_EQ(n0().run(kind::top_up, a, 5).value, 6U);
    n0().set_counter(r, 9);  // another resource of the bucket
    const node_reply upgraded = n0().run(kind::top_up, with_seen(a, "6"), 5);
    EXPECT_EQ(upgraded.status, status::ok);
    EXPECT_EQ(upgraded.value, 9U) << "the higher of eff and stamp";
    EXPECT_TRUE(upgraded.counts);
    EXPECT_EQ(n0().stamp_of(r), "9:5");
    EXPECT_EQ(n0().counter(r), "9") << "no number is used up";
    for (const kind k : kinds_that_need_the_token) {
        EXPECT_EQ(n0().run(k, a, 5).status, status::ok) << "the holder keeps T; " << static_cast<int>(k);
        EXPECT_EQ(n0().run(k, a, 9).status, status::lost) << "the stamp is no token; " << static_cast<int>(k);
    }
    n0().expire_lease(r);
    EXPECT_EQ(n0().run(kind::acquire, call_of('b', {r})).value, 10U) << "above every stamp";
}

TEST_F(rules, upgrade_lifts_a_stamp_below_the_base) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    restart_with_state(0, save_state(0, r));
    ASSERT_EQ(n0().admit(1), "OK");
    const node_reply seen = n0().run(kind::renew, a, 1);
    ASSERT_TRUE(seen.has_stamp);
    const node_reply upgraded = n0().run(kind::top_up, with_seen(a, std::to_string(seen.value)), 1);
    EXPECT_EQ(upgraded.value, base_of_epoch_1);
    EXPECT_TRUE(upgraded.counts);
    EXPECT_EQ(n0().counter(r), std::to_string(base_of_epoch_1));
    EXPECT_EQ(n0().run(kind::renew, a, 1).status, status::ok);
    EXPECT_EQ(n0().run(kind::top_up, with_seen(a, "1"), 1).value, base_of_epoch_1) << "repeated, it changes nothing";
}

TEST_F(rules, upgrade_leaves_no_stamp_above_the_counter) {
    const auto a = call_of('a', {r});
    n0().command({"SET", "fg:lease:" + r, std::string(a.attempt_id.str()) + " 9:0 " + a.tail, "PX", "30000"});
    ASSERT_EQ(n0().counter(r), "");
    EXPECT_EQ(n0().run(kind::top_up, with_seen(a, "9"), 5).value, 9U);
    EXPECT_EQ(n0().counter(r), "9");
}

TEST_F(rules, upgrade_needs_the_stamp_that_the_lease_has) {
    const auto a = call_of('a', {r});
    n0().set_counter(r, 5);
    ASSERT_EQ(n0().run(kind::top_up, a, 5).value, 6U);
    const std::string before = n0().all_keys();
    for (const char* seen : {"", "0", "5", "7", "06"}) {
        const node_reply refused = n0().run(kind::top_up, with_seen(a, seen), 5);
        EXPECT_EQ(refused.status, status::ok) << seen;
        EXPECT_EQ(refused.value, 6U) << seen;
        EXPECT_FALSE(refused.counts) << seen;
        EXPECT_EQ(n0().all_keys(), before) << seen;
    }
    EXPECT_TRUE(n0().run(kind::top_up, with_seen(a, "6"), 5).counts);
}

TEST_F(rules, upgrade_has_no_effect_after_the_lease_was_lost_and_regained) {
    const auto a = call_of('a', {r});
    n0().set_counter(r, 5);
    ASSERT_EQ(n0().run(kind::top_up, a, 5).value, 6U);
    for (const kind k : {kind::acquire, kind::top_up}) {
        n0().expire_lease(r);
        ASSERT_EQ(n0().run(k, a, 5).status, status::ok) << "a late request";
        const std::string before = n0().all_keys();
        EXPECT_FALSE(n0().run(kind::top_up, with_seen(a, "6"), 5).counts) << static_cast<int>(k);
        EXPECT_EQ(n0().all_keys(), before);
    }
    n0().expire_lease(r);
    EXPECT_EQ(n0().run(kind::top_up, with_seen(a, "6"), 5).status, status::lost);
    EXPECT_EQ(n0().lease(r), "") << "UPGRADE never creates a lease";
}

TEST_F(rules, upgrade_extends_the_time_and_never_shortens_it) {
    for (const auto& [first, second] : {std::pair{1s, 20s}, std::pair{20s, 1s}}) {
        const auto a = call_of('a', {r}, first);
        ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
        const std::string stamp = n0().stamp_of(r);
        auto again = call_of('a', {r}, second);
        ASSERT_TRUE(n0().run(kind::top_up, with_seen(again, stamp), 77).counts);
        EXPECT_GT(n0().time_left(r), 19'000);
        n0().expire_lease(r);
    }
    // TOP-UP of a lease that lacks one of its keys writes them all, also those that have more time left.
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {"a", "b"}, 20s)).status, status::ok);
    n0().expire_lease("b");
    ASSERT_EQ(n0().run(kind::top_up, call_of('a', {"a", "b"}, 1s), 77).status, status::ok);
    EXPECT_GT(n0().time_left("a"), 19'000);
}

TEST_F(rules, upgrade_adds_the_id_unless_it_was_released) {
    for (const bool is_released : {false, true}) {
        const auto a = call_of('a', {r});
        ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
        if (is_released) {
            ASSERT_EQ(n0().run(kind::release, with_hold(a, 2)).status, status::ok);
        }
        const std::string stamp = n0().stamp_of(r);
        ASSERT_TRUE(n0().run(kind::top_up, with_seen(with_hold(a, 2), stamp), 77).counts);
        EXPECT_EQ(count_holds(n0().run(kind::renew, a, 77)), is_released ? 1U : 2U);
        const std::string lease = n0().lease(r), id(with_hold(a, 2).hold.str());
        EXPECT_EQ(lease.find(id), lease.rfind(id)) << "a live id or a tombstone";
        n0().expire_lease(r);
    }
}

TEST_F(rules, upgrade_keeps_renewals_and_the_time_held) {
    const auto tail_with = [](auto call, std::uint64_t renewals, milliseconds held) {
        lease_claims claims;
        claims.resources = call.resources;
        claims.hold = call.hold;
        call.tail = lease_tail(claims, {call.ttl, renewals, held, {}, {}});
        return call;
    };
    auto a = tail_with(call_of('a', {r}, 30s), 7, 40s);
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    n0().command({"PEXPIRE", "fg:lease:" + r, "10000"});
    auto less = tail_with(call_of('a', {r}, 30s), 3, 5s), more = tail_with(call_of('a', {r}, 30s), 9, 90s);
    ASSERT_TRUE(n0().run(kind::top_up, with_seen(less, "1"), 77).counts);
    auto record = lease_record::parse(n0().lease(r));
    ASSERT_TRUE(record);
    EXPECT_EQ(record->renewals, 7U);
    EXPECT_GE(record->held, 60s) << "40 s, and 20 s of its ttl have passed";
    EXPECT_LT(record->held, 65s);
    EXPECT_EQ(record->ttl, 30s);
    ASSERT_TRUE(n0().run(kind::top_up, with_seen(more, "1"), 78).counts);
    record = lease_record::parse(n0().lease(r));
    EXPECT_EQ(record->renewals, 9U) << "the majority has counted more";
    EXPECT_EQ(record->held, 90s);
}

TEST_F(rules, upgrade_by_two_gateways_is_done_once) {
    const auto a = call_of('a', {r});
    n0().set_counter(r, 5);
    ASSERT_EQ(n0().run(kind::top_up, a, 5).value, 6U);
    n0().set_counter(r, 9);
    EXPECT_EQ(n0().run(kind::top_up, with_seen(a, "6"), 5).value, 9U);
    n0().set_counter(r, 12);
    const node_reply second = n0().run(kind::top_up, with_seen(with_hold(a, 2), "6"), 5);
    EXPECT_EQ(second.value, 9U);
    EXPECT_TRUE(second.counts);
    EXPECT_EQ(n0().stamp_of(r), "9:5");
}

// --- several resources

TEST_F(rules, several_resources_topped_up_get_one_stamp) {
    const auto a = call_of('a', {"a", "b"});
    n0().set_counter("b", 6);
    const node_reply restored = n0().run(kind::top_up, a, 3);
    EXPECT_EQ(restored.value, 7U);
    EXPECT_FALSE(restored.counts);
    for (const char* name : {"a", "b"}) {
        EXPECT_EQ(n0().counter(name), "7") << name;
        EXPECT_EQ(n0().stamp_of(name), "7:0") << name;
    }
}

TEST_F(rules, several_resources_upgraded_get_one_stamp) {
    const auto a = call_of('a', {"a", "b"});
    n0().set_counter("b", 6);
    ASSERT_EQ(n0().run(kind::top_up, a, 3).value, 7U);
    n0().set_counter("a", 9);
    EXPECT_EQ(n0().run(kind::top_up, with_seen(a, "7"), 3).value, 9U);
    for (const char* name : {"a", "b"}) {
        EXPECT_EQ(n0().counter(name), "9") << name;
        EXPECT_EQ(n0().stamp_of(name), "9:3") << name;
    }
    EXPECT_EQ(n0().run(kind::renew, a, 3).status, status::ok);
}

TEST_F(rules, several_resources_with_differing_stamps_are_put_back) {
    const auto a = call_of('a', {"a", "b"});
    for (const char* stamp_of_b : {"5:3", "6:0"}) {
        ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
        ASSERT_EQ(n0().run(kind::confirm, a, 5).status, status::ok);
        n0().command({"SET", "fg:lease:a", std::string(a.attempt_id.str()) + " 5:3 " + a.tail});
        n0().command({"SET", "fg:lease:b", std::string(a.attempt_id.str()) + ' ' + stamp_of_b + ' ' + a.tail});
        const bool is_one_stamp = std::string(stamp_of_b) == "5:3";
        if (!is_one_stamp) {
            EXPECT_EQ(n0().run(kind::top_up, with_seen(a, "5"), 3).status, status::lost) << "UPGRADE puts nothing back";
            EXPECT_EQ(n0().stamp_of("a"), "5:3");
        }
        const node_reply answer = n0().run(kind::top_up, with_seen(a, is_one_stamp ? "5" : ""), 3);
        EXPECT_EQ(answer.value, is_one_stamp ? 5U : 6U);
        EXPECT_EQ(answer.counts, is_one_stamp);
        for (const char* name : {"a", "b"}) {
            EXPECT_EQ(n0().stamp_of(name), is_one_stamp ? "5:3" : "6:0") << name;
            n0().expire_lease(name);
            n0().set_counter(name, 0);
        }
    }
}

}  // namespace
}  // namespace lockcore
