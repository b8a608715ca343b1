// docs/protocol.md, HOLDS and CLOSE. See rules_test.cpp.
#include <proto/lease_record.hpp>
#include <proto/majority_round.hpp>

#include "paper/admitted_nodes.hpp"

#include <algorithm>

namespace lockcore {
namespace {

using fencegate::testing::call_of;
using fencegate::testing::count_holds;
using fencegate::testing::rules;
using fencegate::testing::stepwise_attempt;
using fencegate::testing::with_hold;
using kind = command_kind;
using status = reply_status;
using namespace std::chrono_literals;

// --- HOLDS

TEST_F(rules, holds_hold_adds_its_id_and_never_shortens_the_time) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r}, 30s)).value, 1U);
    const node_reply hold = n0().run(kind::hold, with_hold(call_of('a', {r}, 1s), 2), 1);
    EXPECT_EQ(hold.status, status::ok);
    EXPECT_EQ(count_holds(hold), 2U);
    EXPECT_EQ(hold.value, 0U) << "no renewal is counted";
    EXPECT_GT(n0().time_left(r), 29'000);
    EXPECT_EQ(n0().token_of(r), "1");
    EXPECT_EQ(count_holds(n0().run(kind::hold, with_hold(call_of('a', {r}), 2), 1)), 2U)
        << "a repeated HOLD adds nothing";
}

TEST_F(rules, holds_hold_extends_the_time_on_the_node) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r}, 1s)).value, 1U);
    ASSERT_EQ(n0().run(kind::hold, with_hold(call_of('a', {r}, 20s), 2), 1).status, status::ok);
    EXPECT_GT(n0().time_left(r), 19'000);
}

TEST_F(rules, holds_hold_under_another_token_says_lost_and_adds_its_id) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    ASSERT_EQ(n0().run(kind::confirm, call_of('a', {r}), 5).status, status::ok);
    EXPECT_EQ(n0().run(kind::hold, with_hold(call_of('a', {r}), 2), 1).status, status::lost);
    EXPECT_EQ(count_holds(n0().run(kind::release, call_of('a', {r}))), 1U);
    EXPECT_NE(n0().lease(r), "");
}

TEST_F(rules, holds_release_takes_its_own_id_and_the_last_ends_the_lease) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    ASSERT_EQ(n0().run(kind::hold, with_hold(call_of('a', {r}), 2), 1).status, status::ok);
    for (int repetition = 0; repetition < 2; ++repetition) {
        const node_reply released = n0().run(kind::release, call_of('a', {r}));
        EXPECT_EQ(released.status, status::ok);
        EXPECT_EQ(count_holds(released), 1U);
        EXPECT_EQ(n0().token_of(r), "1");
    }
    EXPECT_EQ(count_holds(n0().run(kind::release, with_hold(call_of('a', {r}), 2))), 0U);
    EXPECT_EQ(n0().lease(r), "");
    EXPECT_EQ(n0().run(kind::release, with_hold(call_of('a', {r}), 2)).status, status::lost);
}

TEST_F(rules, holds_tombstone_refuses_a_hold_after_its_release) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    ASSERT_EQ(count_holds(n0().run(kind::release, with_hold(call_of('a', {r}), 2))), 1U);
    const std::string before = n0().all_keys();
    EXPECT_EQ(n0().run(kind::hold, with_hold(call_of('a', {r}), 2), 1).status, status::lost);
    EXPECT_EQ(n0().run(kind::renew, with_hold(call_of('a', {r}), 2), 1).status, status::lost);
    EXPECT_EQ(n0().run(kind::inspect, with_hold(call_of('a', {r}), 2), 1).status, status::lost);
    EXPECT_EQ(n0().all_keys(), before);
    EXPECT_EQ(n0().run(kind::top_up, with_hold(call_of('a', {r}), 2), 1).status, status::ok);
    const std::string lease = n0().lease(r), id(with_hold(call_of('a', {r}), 2).hold.str());
    EXPECT_EQ(lease.find(id), lease.rfind(id)) << "it has the tombstone only: " << lease;
}

TEST_F(rules, top_up_puts_nothing_back_without_a_live_hold) {
    const auto a = call_of('a', {r}), second = with_hold(a, 2);
    ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
    ASSERT_EQ(n0().run(kind::hold, second, 1).status, status::ok);
    ASSERT_EQ(n0().run(kind::release, a).status, status::ok);
    std::string lease = n0().lease(r);
    const std::string id(second.hold.str());
    ASSERT_NE(lease.find(id), std::string::npos);
    n0().command({"SET", "fg:lease:" + r, lease.erase(lease.find(id), id.size()), "PX", "20000"});
    const std::string before = n0().all_keys();
    EXPECT_EQ(n0().run(kind::top_up, a, 1).status, status::lost);
    EXPECT_EQ(n0().all_keys(), before);
}

TEST_F(rules, holds_renew_and_top_up_add_a_missing_id) {
    for (const kind k : {kind::renew, kind::top_up}) {
        ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).status, status::ok);
        const std::uint64_t token = std::stoull(n0().token_of(r));
        EXPECT_EQ(n0().run(k, with_hold(call_of('a', {r}), 2), token).status, status::ok);
        EXPECT_EQ(count_holds(n0().run(kind::release, call_of('a', {r}))), 1U);
        EXPECT_EQ(n0().run(kind::inspect, with_hold(call_of('a', {r}), 2), token).status, status::ok);
        n0().expire_lease(r);
    }
}

TEST_F(rules, holds_inspect_says_lost_where_the_hold_is_unknown) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    EXPECT_EQ(n0().run(kind::inspect, with_hold(call_of('a', {r}), 2), 1).status, status::lost);
}

// Another request of the same owner may have added a hold meanwhile, which undo must not remove.
TEST_F(rules, holds_undo_removes_one_hold_and_keeps_the_lease) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    ASSERT_EQ(n0().run(kind::hold, with_hold(call_of('a', {r}), 2), 1).status, status::ok);
    EXPECT_EQ(count_holds(n0().run(kind::undo, call_of('a', {r}))), 1U);
    EXPECT_NE(n0().lease(r), "");
    auto whole = call_of('a', {r});
    whole.scope = release_scope::whole_lease;
    EXPECT_EQ(n0().run(kind::release, whole).status, status::ok);
    EXPECT_EQ(n0().lease(r), "");
}

TEST_F(rules, holds_undone_hold_is_removed_with_its_idempotency_key) {
    const std::string key(24, 'e');
    for (const bool undone : {true, false}) {
        ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).status, status::ok);
        auto second = with_hold(call_of('a', {r}), 2);
        second.key = key;
        ASSERT_EQ(n0().run(kind::hold, second, std::stoull(n0().token_of(r))).status, status::ok);
        EXPECT_NE(n0().lease(r).find(key + ":0000000000000004"), std::string::npos);
        second.scope = undone ? release_scope::undone_hold : release_scope::hold;
        EXPECT_EQ(n0().run(kind::release, second).status, status::ok);
        EXPECT_EQ(n0().lease(r).find(key) == std::string::npos, undone);
        n0().expire_lease(r);
    }
}

TEST_F(rules, holds_and_tombstones_have_a_limit_and_the_refusal_names_it) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    for (std::uint64_t id = 2; id <= holds_max; ++id)
        ASSERT_EQ(n0().run(kind::hold, with_hold(call_of('a', {r}), id), 1).status, status::ok) << id;
    const node_reply refused = n0().run(kind::hold, with_hold(call_of('a', {r}), 1'000), 1);
    EXPECT_EQ(refused.status, status::exhausted);
    EXPECT_EQ(refused.value, holds_max);
    EXPECT_EQ(n0().run(kind::hold, with_hold(call_of('a', {r}), 2), 1).status, status::ok) << "one of them, repeated";
    EXPECT_EQ(n0().run(kind::renew, with_hold(call_of('a', {r}), 1'001), 1).status, status::ok)
        << "one that other nodes granted";
    ASSERT_EQ(n0().run(kind::release, with_hold(call_of('a', {r}), 1'001)).status, status::ok);
    for (std::uint64_t id = 2; id <= 200; ++id)
        ASSERT_EQ(n0().run(kind::release, with_hold(call_of('a', {r}), id)).status, status::ok);
    const std::string lease = n0().lease(r);
    EXPECT_EQ(std::count(lease.begin(), lease.end(), ','), 63) << "64 tombstones, the newest ones";
    EXPECT_NE(lease.find(std::string(hold_id::from_bits(400).str())), std::string::npos);
}

// Node 2 misses the second hold and node 0 the third. After two releases every majority has a node with the third hold,
// which refuses a rival. With counts instead of ids, two releases would free a majority.
TEST_F(rules, holds_on_different_majorities_each_keep_rivals_out) {
    stepwise_attempt a(nodes, call_of('a', {r}));
    for (std::size_t n = 0; n < 3; ++n)
        a.acquire_on(n);
    a.deliver_all_confirms();
    ASSERT_TRUE(a.is_granted());
    for (const std::size_t n : {0U, 1U})
        ASSERT_EQ(nodes[n].run(kind::hold, with_hold(a.call(), 2), a.token()).status, status::ok);
    for (const std::size_t n : {1U, 2U})
        ASSERT_EQ(nodes[n].run(kind::hold, with_hold(a.call(), 3), a.token()).status, status::ok);
    for (auto& node : nodes) {
        node.run(kind::release, a.call());
        node.run(kind::release, with_hold(a.call(), 2));
    }
    EXPECT_EQ(nodes[0].lease(r), "");
    stepwise_attempt rival(nodes, call_of('b', {r}));
    for (std::size_t n = 0; n < 3; ++n)
        rival.acquire_on(n);
    EXPECT_FALSE(rival.is_granted());
    majority_round alive(3);
    for (std::size_t n = 0; n < 3; ++n)
        alive.answered(static_cast<node_index>(n), nodes[n].run(kind::inspect, with_hold(a.call(), 3), a.token()));
    EXPECT_EQ(alive.outcome(), majority_round::verdict::yes);
}

// --- CLOSE

lease_call close_call(lease_call call, const char* mark = "00000000000000c1") {
    call.close_mark = mark;
    return call;
}
lease_call lift_call(lease_call call) {
    call.lift = true;
    return call;
}

TEST_F(rules, close_refuses_hold_until_it_is_lifted) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    ASSERT_EQ(n0().run(kind::close, close_call(a)).status, status::ok);
    EXPECT_EQ(n0().run(kind::hold, with_hold(a, 2), 1).status, status::lost);
    EXPECT_EQ(n0().run(kind::renew, a, 1).status, status::ok) << "its holder may renew";
    EXPECT_EQ(n0().run(kind::hold, with_hold(a, 2), 1).status, status::lost);
    ASSERT_EQ(n0().run(kind::close, lift_call(close_call(a))).status, status::ok);
    EXPECT_EQ(n0().run(kind::hold, with_hold(a, 2), 1).status, status::ok);
}

TEST_F(rules, close_does_nothing_when_other_holds_are_left) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    ASSERT_EQ(n0().run(kind::hold, with_hold(a, 2), 1).status, status::ok);
    const std::string before = n0().all_keys();
    const node_reply kept = n0().run(kind::close, close_call(a));
    EXPECT_EQ(kept.status, status::other_holds);
    EXPECT_EQ(count_holds(kept), 2U);
    EXPECT_EQ(n0().all_keys(), before);
    EXPECT_EQ(n0().run(kind::close, close_call(call_of('b', {r}))).status, status::lost)
        << "the lease of another holder";
}

// A release with a seal that is repeated while the first one is under way: either may fail, and the other may seal.
TEST_F(rules, close_is_lifted_only_by_the_calls_that_set_it) {
    const auto a = call_of('a', {r});
    const std::vector<const char*> calls = {"00000000000000c1", "00000000000000c2", "00000000000000c3"};
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    for (const char* mark : {calls[0], calls[1], calls[0]})
        ASSERT_EQ(n0().run(kind::close, close_call(a, mark)).status, status::ok);
    for (const char* mark : {calls[2], calls[0]}) {
        ASSERT_EQ(n0().run(kind::close, lift_call(close_call(a, mark))).status, status::ok);
        EXPECT_EQ(n0().run(kind::hold, with_hold(a, 2), 1).status, status::lost) << mark;
    }
    ASSERT_EQ(n0().run(kind::close, lift_call(close_call(a, calls[1]))).status, status::ok);
    EXPECT_EQ(n0().run(kind::hold, with_hold(a, 2), 1).status, status::ok);
}

// Eight calls did not end, for their gateways crashed. The tokens of the oldest may be sealed.
TEST_F(rules, close_replaces_the_oldest_of_eight_marks_for_good) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    const auto mark = [](int number) { return std::string(15, '0') + "0123456789abcdef"[number]; };
    for (int i = 0; i < 12; ++i)
        ASSERT_EQ(n0().run(kind::close, close_call(a, mark(i).c_str())).status, status::ok);
    const std::string text = n0().lease(r), id(a.hold.str());
    std::string kept;
    for (int i = 5; i < 12; ++i)
        kept += id + mark(i);
    EXPECT_EQ(text.substr(text.rfind('\n') + 1), kept + id + id) << "seven, and the one that stays";
    for (int i = 0; i < 12; ++i)
        ASSERT_EQ(n0().run(kind::close, lift_call(close_call(a, mark(i).c_str()))).status, status::ok);
    EXPECT_EQ(n0().run(kind::hold, with_hold(a, 2), 1).status, status::lost);
}

// The token may be sealed, and on this node another hold is left that no majority has.
TEST_F(rules, close_lasts_after_the_release_of_its_hold) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    ASSERT_EQ(n0().run(kind::close, close_call(a)).status, status::ok);
    ASSERT_EQ(n0().run(kind::renew, with_hold(a, 2), 1).status, status::ok) << "a hold that had missed this node";
    ASSERT_EQ(n0().run(kind::release, a).status, status::ok);
    EXPECT_EQ(n0().run(kind::hold, with_hold(a, 3), 1).status, status::lost);
}

TEST_F(rules, close_of_several_resources_has_the_marks_of_all) {
    auto a = call_of('a', {r, "b"});
    ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
    ASSERT_EQ(n0().run(kind::close, close_call(a)).status, status::ok);
    n0().expire_lease("b");
    ASSERT_EQ(n0().run(kind::top_up, a, 1).value, 2U) << "its counter is 1 already; the tail has no mark";
    a.seen = "2";
    ASSERT_TRUE(n0().run(kind::top_up, a, 1).counts);
    for (const std::string& name : {std::string(r), std::string("b")})
        EXPECT_TRUE(n0().lease(name).ends_with("00000000000000c1")) << name;
    n0().expire_lease("b");
    ASSERT_EQ(n0().run(kind::close, lift_call(close_call(a))).status, status::lost);
    EXPECT_TRUE(n0().lease(r).ends_with("\n")) << "the mark is removed where there is a lease";
}

// Copies of different age were merged for each key.
TEST_F(rules, close_mark_of_one_of_several_keys_counts_for_all) {
    auto a = call_of('a', {r, "b"});
    ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
    ASSERT_EQ(n0().run(kind::close, close_call(a)).status, status::ok);
    a.seen = "1";
    for (const kind command : {kind::inspect, kind::renew, kind::top_up}) {
        for (const std::string& name : {std::string(r), std::string("b")}) {
            const std::string text = n0().lease(name);
            n0().command({"SET", "fg:lease:" + name, text.substr(0, text.rfind('\n') + 1), "PX", "20000"});
            const node_reply reply = n0().run(command, a, 1);
            ASSERT_EQ(reply.status, status::ok);
            EXPECT_TRUE(command == kind::top_up || reply.text.ends_with("00000000000000c1")) << reply.text;
            EXPECT_TRUE(n0().lease(name).ends_with("00000000000000c1"));
        }
    }
}

TEST_F(rules, close_mark_is_written_by_top_up) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    ASSERT_EQ(n0().run(kind::close, close_call(a)).status, status::ok);
    const node_reply renewed = n0().run(kind::renew, a, 1);
    majority_round round(1);
    round.answered(node_index{0}, renewed);
    auto again = a;
    lease_claims claims;
    claims.resources = a.resources;
    claims.hold = a.hold;
    again.tail = lease_tail(claims, {a.ttl, 1, {}, {}, {}, round.close_marks()});
    n0().expire_lease(r);
    ASSERT_EQ(n0().run(kind::top_up, again, 1).value, 2U) << "its counter is 1 already";
    again.seen = "2";
    ASSERT_TRUE(n0().run(kind::top_up, again, 1).counts);
    EXPECT_EQ(n0().run(kind::hold, with_hold(a, 2), 1).status, status::lost);
    ASSERT_EQ(n0().run(kind::close, lift_call(close_call(a))).status, status::ok);
    EXPECT_EQ(n0().run(kind::hold, with_hold(a, 2), 1).status, status::ok) << "the call that set the mark removes it";
}

// TOP-UP has put the lease on the node, and others hold it since.
TEST_F(rules, r1_late_acquire_keeps_what_the_own_lease_has) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    ASSERT_EQ(n0().run(kind::hold, with_hold(a, 7), 1).status, status::ok);
    ASSERT_EQ(n0().run(kind::hold, with_hold(a, 8), 1).status, status::ok);
    ASSERT_EQ(n0().run(kind::release, with_hold(a, 8)).status, status::ok);
    const auto before = lease_record::parse(n0().lease(r));
    EXPECT_EQ(n0().run(kind::acquire, a).value, 2U) << "late";
    const auto after = lease_record::parse(n0().lease(r));
    ASSERT_TRUE(before && after);
    EXPECT_EQ(after->holds.text(), before->holds.text());
    EXPECT_EQ(after->stamp, 2U);
    EXPECT_EQ(value_of(after->token), 2U);
    EXPECT_EQ(n0().counter(r), "2");
    ASSERT_EQ(n0().run(kind::close, close_call(a)).status, status::other_holds);
}

// A repeated request may see the token that the attempt had on a majority before it was complete with a higher one.
TEST_F(rules, upgrade_replaces_no_token_above_that_of_the_caller) {
    const auto a = call_of('a', {"a"});
    ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
    ASSERT_EQ(n0().run(kind::confirm, a, 5).status, status::ok);
    const node_reply seen = n0().run(kind::inspect, a, 3);
    ASSERT_TRUE(seen.has_stamp);
    lease_call upgrade = a;
    upgrade.seen = std::to_string(seen.value);
    EXPECT_EQ(n0().run(kind::top_up, upgrade, 3).status, status::lost);
    EXPECT_EQ(n0().stamp_of("a"), "5");
    EXPECT_EQ(n0().run(kind::inspect, a, 5).status, status::ok);
}

}  // namespace
}  // namespace lockcore
