// docs/protocol.md, HOLDS and CLOSE. As rules_test.cpp.
#include <proto/lease_record.hpp>
#include <proto/majority_round.hpp>

#include "paper/paper_nodes.hpp"

#include <algorithm>

namespace lockcore {
namespace {

using fencegate::testing::call_of;
using fencegate::testing::caller;
using fencegate::testing::held_by;
using fencegate::testing::rules;
using kind = command_kind;
using status = reply_status;
using namespace std::chrono_literals;

// --- HOLDS

std::size_t holds_in(const node_reply& reply) {
    hold_view view;
    view.add(reply.text);
    return view.count();
}

TEST_F(rules, holds_hold_adds_its_id_and_never_cuts_the_time) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r}, 30s)).value, 1U);
    const node_reply hold = n0().run(kind::hold, held_by(call_of('a', {r}, 1s), 2), 1);
    EXPECT_EQ(hold.status, status::ok);
    EXPECT_EQ(holds_in(hold), 2U);
    EXPECT_EQ(hold.value, 0U) << "no renewal is counted";
    EXPECT_GT(n0().time_left(r), 29'000);
    EXPECT_EQ(n0().token_of(r), "1");
    EXPECT_EQ(holds_in(n0().run(kind::hold, held_by(call_of('a', {r}), 2), 1)), 2U) << "twice is once";
}

TEST_F(rules, holds_hold_gives_the_node_its_time) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r}, 1s)).value, 1U);
    ASSERT_EQ(n0().run(kind::hold, held_by(call_of('a', {r}, 20s), 2), 1).status, status::ok);
    EXPECT_GT(n0().time_left(r), 19'000);
}

TEST_F(rules, holds_hold_under_another_token_keeps_the_key_and_counts_for_nobody) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    ASSERT_EQ(n0().run(kind::confirm, call_of('a', {r}), 5).status, status::ok);
    EXPECT_EQ(n0().run(kind::hold, held_by(call_of('a', {r}), 2), 1).status, status::lost);
    EXPECT_EQ(holds_in(n0().run(kind::release, call_of('a', {r}))), 1U);
    EXPECT_NE(n0().lease(r), "");
}

TEST_F(rules, holds_release_takes_its_own_id_and_the_last_ends_the_lease) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    ASSERT_EQ(n0().run(kind::hold, held_by(call_of('a', {r}), 2), 1).status, status::ok);
    for (int twice = 0; twice < 2; ++twice) {
        const node_reply released = n0().run(kind::release, call_of('a', {r}));
        EXPECT_EQ(released.status, status::ok);
        EXPECT_EQ(holds_in(released), 1U);
        EXPECT_EQ(n0().token_of(r), "1");
    }
    EXPECT_EQ(holds_in(n0().run(kind::release, held_by(call_of('a', {r}), 2))), 0U);
    EXPECT_EQ(n0().lease(r), "");
    EXPECT_EQ(n0().run(kind::release, held_by(call_of('a', {r}), 2)).status, status::lost);
}

TEST_F(rules, holds_tombstone_keeps_out_a_hold_that_comes_behind_its_release) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    ASSERT_EQ(holds_in(n0().run(kind::release, held_by(call_of('a', {r}), 2))), 1U);
    const std::string before = n0().all_keys();
    EXPECT_EQ(n0().run(kind::hold, held_by(call_of('a', {r}), 2), 1).status, status::lost);
    EXPECT_EQ(n0().run(kind::renew, held_by(call_of('a', {r}), 2), 1).status, status::lost);
    EXPECT_EQ(n0().run(kind::inspect, held_by(call_of('a', {r}), 2), 1).status, status::lost);
    EXPECT_EQ(n0().run(kind::top_up, held_by(call_of('a', {r}), 2), 1).status, status::ok);
    EXPECT_EQ(n0().all_keys(), before);
}

TEST_F(rules, holds_renew_and_top_up_add_the_senders_id_where_it_is_missing) {
    for (const kind k : {kind::renew, kind::top_up}) {
        ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).status, status::ok);
        const std::uint64_t token = std::stoull(n0().token_of(r));
        EXPECT_EQ(n0().run(k, held_by(call_of('a', {r}), 2), token).status, status::ok);
        EXPECT_EQ(holds_in(n0().run(kind::release, call_of('a', {r}))), 1U);
        EXPECT_EQ(n0().run(kind::inspect, held_by(call_of('a', {r}), 2), token).status, status::ok);
        n0().run_out(r);
    }
}

TEST_F(rules, holds_inspect_counts_no_node_that_does_not_know_of_the_hold) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    EXPECT_EQ(n0().run(kind::inspect, held_by(call_of('a', {r}), 2), 1).status, status::lost);
}

// Another request of the same owner may have been given a hold of it meanwhile.
TEST_F(rules, holds_undo_takes_one_hold_and_only_taking_it_away_ends_the_lease) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    ASSERT_EQ(n0().run(kind::hold, held_by(call_of('a', {r}), 2), 1).status, status::ok);
    EXPECT_EQ(holds_in(n0().run(kind::undo, call_of('a', {r}))), 1U);
    EXPECT_NE(n0().lease(r), "");
    auto whole = call_of('a', {r});
    whole.scope = redis::release_scope::whole_lease;
    EXPECT_EQ(n0().run(kind::release, whole).status, status::ok);
    EXPECT_EQ(n0().lease(r), "");
}

TEST_F(rules, holds_undone_hold_is_forgotten_with_its_key_and_a_released_one_is_not) {
    const std::string key(24, 'e');
    for (const bool undone : {true, false}) {
        ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).status, status::ok);
        auto second = held_by(call_of('a', {r}), 2);
        second.key = key;
        ASSERT_EQ(n0().run(kind::hold, second, std::stoull(n0().token_of(r))).status, status::ok);
        EXPECT_NE(n0().lease(r).find(key + ":0000000000000002"), std::string::npos);
        second.scope = undone ? redis::release_scope::undone_hold : redis::release_scope::hold;
        EXPECT_EQ(n0().run(kind::release, second).status, status::ok);
        EXPECT_EQ(n0().lease(r).find(key) == std::string::npos, undone);
        n0().run_out(r);
    }
}

TEST_F(rules, holds_and_tombstones_have_a_limit_and_the_refusal_names_it) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    for (std::uint64_t id = 2; id <= holds_max; ++id)
        ASSERT_EQ(n0().run(kind::hold, held_by(call_of('a', {r}), id), 1).status, status::ok) << id;
    const node_reply refused = n0().run(kind::hold, held_by(call_of('a', {r}), 1'000), 1);
    EXPECT_EQ(refused.status, status::exhausted);
    EXPECT_EQ(refused.value, holds_max);
    for (std::uint64_t id = 2; id <= 200; ++id)
        ASSERT_EQ(n0().run(kind::release, held_by(call_of('a', {r}), id)).status, status::ok);
    const std::string lease = n0().lease(r);
    EXPECT_EQ(std::count(lease.begin(), lease.end(), ','), 63) << "the newest tombstones";
    EXPECT_NE(lease.find(std::string(hold_id::from_bits(200).str())), std::string::npos);
}

// Nodes 3 and 4 miss the second hold, 0 and 1 the third: two releases, and each majority has a node that keeps rivals
// out. With counts they were 2, 2, 3, 2, 2, and two releases freed three nodes.
TEST_F(rules, holds_on_different_majorities_are_each_kept_by_one) {
    caller a(nodes, call_of('a', {r}));
    for (std::size_t n = 0; n < 3; ++n)
        a.ask(n);
    a.confirm_all();
    ASSERT_TRUE(a.granted());
    for (const std::size_t n : {0U, 1U})
        ASSERT_EQ(nodes[n].run(kind::hold, held_by(a.call(), 2), a.token()).status, status::ok);
    for (const std::size_t n : {1U, 2U})
        ASSERT_EQ(nodes[n].run(kind::hold, held_by(a.call(), 3), a.token()).status, status::ok);
    for (auto& node : nodes) {
        node.run(kind::release, a.call());
        node.run(kind::release, held_by(a.call(), 2));
    }
    EXPECT_EQ(nodes[0].lease(r), "");
    caller rival(nodes, call_of('b', {r}));
    for (std::size_t n = 0; n < 3; ++n)
        rival.ask(n);
    EXPECT_FALSE(rival.granted());
    majority_round alive(3);
    for (std::size_t n = 0; n < 3; ++n)
        alive.answered(static_cast<node_index>(n), nodes[n].run(kind::inspect, held_by(a.call(), 3), a.token()));
    EXPECT_EQ(alive.outcome(), majority_round::verdict::yes);
}

// --- CLOSE

redis::lease_call closing(redis::lease_call call, const char* mark = "00000000000000c1") {
    call.close_mark = mark;
    return call;
}
redis::lease_call lifting(redis::lease_call call) {
    call.lift = true;
    return call;
}

TEST_F(rules, close_refuses_hold_until_it_is_lifted) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    ASSERT_EQ(n0().run(kind::close, closing(a)).status, status::ok);
    EXPECT_EQ(n0().run(kind::hold, held_by(a, 2), 1).status, status::lost);
    EXPECT_EQ(n0().run(kind::renew, a, 1).status, status::ok) << "its holder goes on";
    EXPECT_EQ(n0().run(kind::hold, held_by(a, 2), 1).status, status::lost);
    ASSERT_EQ(n0().run(kind::close, lifting(closing(a))).status, status::ok);
    EXPECT_EQ(n0().run(kind::hold, held_by(a, 2), 1).status, status::ok);
}

TEST_F(rules, close_does_nothing_when_other_holds_are_left) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    ASSERT_EQ(n0().run(kind::hold, held_by(a, 2), 1).status, status::ok);
    const std::string before = n0().all_keys();
    const node_reply kept = n0().run(kind::close, closing(a));
    EXPECT_EQ(kept.status, status::kept);
    EXPECT_EQ(holds_in(kept), 2U);
    EXPECT_EQ(n0().all_keys(), before);
    EXPECT_EQ(n0().run(kind::close, closing(call_of('b', {r}))).status, status::lost) << "not the caller's";
}

// A lift that was sent again may come behind a later CLOSE of the same hold.
TEST_F(rules, close_is_lifted_by_the_attempt_that_made_it_only) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    ASSERT_EQ(n0().run(kind::close, closing(a, "00000000000000c2")).status, status::ok);
    ASSERT_EQ(n0().run(kind::close, lifting(closing(a, "00000000000000c1"))).status, status::ok);
    EXPECT_EQ(n0().run(kind::hold, held_by(a, 2), 1).status, status::lost);
}

TEST_F(rules, close_ends_with_the_hold_that_closed) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    ASSERT_EQ(n0().run(kind::close, closing(a)).status, status::ok);
    ASSERT_EQ(n0().run(kind::renew, held_by(a, 2), 1).status, status::ok) << "a hold that had missed this node";
    ASSERT_EQ(n0().run(kind::release, a).status, status::ok);
    EXPECT_EQ(n0().run(kind::hold, held_by(a, 3), 1).status, status::ok);
}

TEST_F(rules, close_mark_travels_with_top_up) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    ASSERT_EQ(n0().run(kind::close, closing(a)).status, status::ok);
    const node_reply renewed = n0().run(kind::renew, a, 1);
    majority_round round(1);
    round.answered(node_index{0}, renewed);
    EXPECT_TRUE(round.closed());
    auto again = a;
    lease_claims claims;
    claims.resources = a.resources;
    claims.hold = a.hold;
    again.tail = lease_tail(claims, {a.ttl, 1, {}, {}, {}, round.closed()});
    n0().run_out(r);
    ASSERT_EQ(n0().run(kind::top_up, again, 1).status, status::ok);
    EXPECT_EQ(n0().run(kind::hold, held_by(a, 2), 1).status, status::lost);
}

}  // namespace
}  // namespace lockcore
