// docs/protocol.md, HOLDS: the two ids of a hold with an idempotency key. See rules_test.cpp.
#include <proto/lease_record.hpp>

#include "paper/admitted_nodes.hpp"

namespace lockcore {
namespace {

using fencegate::testing::call_of;
using fencegate::testing::count_holds;
using fencegate::testing::rules;
using fencegate::testing::with_hold;
using kind = command_kind;
using status = reply_status;

// The first request may have failed at its gateway after a majority executed it, and its undo may be late.
// A repeated request, and every later call of its caller, has the confirmed id.

const idempotency_digest digest{"0123456789abcdef01234567"};

lease_call keyed_call(const std::vector<std::string>& names) {
    auto a = call_of('a', names);
    a.scope = release_scope::undone_hold;
    lease_claims claims;
    claims.hold = a.hold;
    claims.resources = a.resources;
    a.tail = lease_tail(claims, {a.ttl, 0, {}, digest.text, {}, {}});
    return a;
}

lease_call confirmed(lease_call call) {
    call.hold = call.hold.confirmed();
    call.scope = release_scope::hold;
    return call;
}

// RE-ENTRANT: the key names its principal, and any process of the caller may repeat the request.
TEST_F(rules, re_entrant_acquire_says_own_to_any_owner_with_the_key) {
    const auto call = [](char attempt, const std::string& principal, const std::string& owner, const std::string& key,
                         const std::vector<std::string>& names) {
        auto out = call_of(attempt, names);
        lease_claims claims;
        claims.hold = out.hold;
        claims.resources = out.resources;
        claims.holder = {principal, owner};
        out.tail = lease_tail(claims, {out.ttl, 0, {}, key, {}, {}});
        return out;
    };
    const std::string other = "1123456789abcdef01234567";
    for (const std::string owner : {"worker-7", ""}) {
        ASSERT_EQ(n0().run(kind::acquire, call('a', "orders", owner, digest.text, {"a", "b"})).status, status::ok);
        for (const std::string asking : {"worker-7", "worker-8", ""})
            EXPECT_EQ(n0().run(kind::acquire, call('b', "orders", asking, digest.text, {"a", "b"})).status,
                      status::own);
        EXPECT_EQ(n0().run(kind::acquire, call('c', "orders", "worker-8", other, {"a", "b"})).status, status::held);
        EXPECT_EQ(n0().run(kind::acquire, call('d', "billing", owner, digest.text, {"a", "b"})).status, status::held);
        EXPECT_EQ(n0().run(kind::acquire, call('e', "orders", owner, digest.text, {"a"})).status, status::held);
        n0().expire_lease("a");
        n0().expire_lease("b");
    }
}

TEST_F(rules, holds_undo_keeps_a_hold_that_a_repeat_confirmed) {
    for (const std::vector<std::string>& names : {std::vector<std::string>{"a"}, {"b", "c"}}) {
        const auto a = keyed_call(names);
        ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
        ASSERT_EQ(n0().run(kind::inspect, confirmed(a), 1).status, status::ok);
        EXPECT_EQ(n0().run(kind::undo, a).status, status::lost);
        EXPECT_EQ(n0().run(kind::inspect, confirmed(a), 1).status, status::ok);
        const auto record = lease_record::parse(n0().lease(names.front()));
        ASSERT_TRUE(record);
        EXPECT_EQ(record->holds.count(), 1U);
        EXPECT_EQ(digest.find_in(record->keys).result, idempotency_digest::match::same) << "further repeats find it";
        EXPECT_EQ(n0().run(kind::release, confirmed(a)).status, status::ok) << "its caller releases it";
        EXPECT_EQ(n0().lease(names.front()), "");
    }
}

TEST_F(rules, holds_undo_releases_a_hold_that_nobody_confirmed) {
    const auto a = keyed_call({"a"});
    ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
    ASSERT_EQ(n0().run(kind::inspect, a, 1).status, status::ok);
    EXPECT_EQ(n0().run(kind::undo, a).status, status::ok);
    EXPECT_EQ(n0().lease("a"), "");
}

TEST_F(rules, holds_release_by_the_caller_ends_a_tentative_hold_too) {
    const auto a = keyed_call({"a"});
    ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
    ASSERT_EQ(n0().run(kind::release, confirmed(a)).status, status::ok);
    EXPECT_EQ(n0().lease("a"), "");
}

// A repeat may have confirmed the hold on other nodes only; what it is answered from then on counts this node as well.
TEST_F(rules, holds_every_answer_to_the_caller_confirms_on_its_node) {
    const auto again = [&](kind command) {
        n0().run(kind::release, confirmed(keyed_call({"a"})));
        const auto a = keyed_call({"a"});
        const std::uint64_t token = n0().run(kind::acquire, a).value;
        auto call = confirmed(a);
        if (command == kind::close) call.close_mark = "00000000000000c1";
        EXPECT_EQ(n0().run(command, call, token).status, status::ok);
        n0().run(kind::undo, a);
        return n0().run(kind::inspect, confirmed(a), token).status;
    };
    for (const kind command : {kind::renew, kind::inspect, kind::top_up, kind::close, kind::hold})
        EXPECT_EQ(again(command), status::ok) << static_cast<int>(command);
}

// The undo came first: its tombstone is only about the tentative id.
TEST_F(rules, holds_renewal_of_the_confirmed_hold_adds_it_after_an_undo) {
    const auto a = keyed_call({"a"});
    ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
    ASSERT_EQ(n0().run(kind::hold, with_hold(a, 7), 1).status, status::ok) << "another hold keeps the lease";
    ASSERT_EQ(n0().run(kind::undo, a).status, status::ok);
    EXPECT_EQ(n0().run(kind::inspect, confirmed(a), 1).status, status::lost);
    EXPECT_EQ(n0().run(kind::renew, a, 1).status, status::lost) << "the tentative id was undone";
    EXPECT_EQ(n0().run(kind::renew, confirmed(a), 1).status, status::ok);
    EXPECT_EQ(n0().run(kind::inspect, confirmed(a), 1).status, status::ok);
    EXPECT_EQ(n0().run(kind::undo, a).status, status::lost) << "repeated";
    ASSERT_EQ(n0().run(kind::release, confirmed(a)).status, status::ok);
    EXPECT_EQ(n0().run(kind::hold, a, 1).status, status::lost) << "a tombstone of the confirmed id is one of the hold";
    EXPECT_EQ(n0().run(kind::renew, confirmed(a), 1).status, status::lost);
}

// The lease keeps eight idempotency keys; what was confirmed does not depend on them.
TEST_F(rules, holds_confirmed_hold_outlives_its_idempotency_key) {
    const auto a = keyed_call({"a"});
    ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
    ASSERT_EQ(n0().run(kind::inspect, confirmed(a), 1).status, status::ok);
    for (std::uint64_t i = 1; i <= 8; ++i) {
        auto other = with_hold(a, 100 + i);
        other.key = std::string(23, '0') + static_cast<char>('0' + i);
        ASSERT_EQ(n0().run(kind::hold, other, 1).status, status::ok);
        other.scope = release_scope::hold;
        ASSERT_EQ(n0().run(kind::release, other).status, status::ok);
    }
    ASSERT_EQ(digest.find_in(lease_record::parse(n0().lease("a"))->keys).result, idempotency_digest::match::none);
    EXPECT_EQ(n0().run(kind::undo, a).status, status::lost);
    EXPECT_EQ(n0().run(kind::inspect, confirmed(a), 1).status, status::ok);
}

TEST_F(rules, holds_key_of_a_repeated_hold_is_kept_once) {
    const auto a = call_of('a', {"a"});
    ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
    auto second = with_hold(a, 7);
    second.key = digest.text;
    ASSERT_EQ(n0().run(kind::hold, second, 1).status, status::ok);
    ASSERT_EQ(n0().run(kind::hold, second, 1).status, status::ok);
    EXPECT_EQ(lease_record::parse(n0().lease("a"))->keys, digest.text + ":" + std::string(second.hold.str()));
}

// The first request is late: a repeated one added the hold under its confirmed id.
TEST_F(rules, holds_late_tentative_id_is_not_added_beside_the_confirmed) {
    const auto a = call_of('a', {r}), second = with_hold(a, 7);
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    ASSERT_EQ(n0().run(kind::hold, confirmed(second), 1).status, status::ok);
    EXPECT_EQ(count_holds(n0().run(kind::hold, second, 1)), 2U);
    EXPECT_EQ(count_holds(n0().run(kind::release, confirmed(second))), 1U);
    EXPECT_EQ(count_holds(n0().run(kind::release, a)), 0U);
    EXPECT_EQ(n0().lease(r), "");
}

TEST_F(rules, holds_release_of_a_confirmed_hold_leaves_the_others) {
    const auto a = call_of('a', {r}), second = with_hold(a, 7);
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    ASSERT_EQ(n0().run(kind::hold, confirmed(second), 1).status, status::ok);
    EXPECT_EQ(count_holds(n0().run(kind::release, confirmed(second))), 1U);
    EXPECT_EQ(n0().run(kind::inspect, confirmed(second), 1).status, status::lost);
    EXPECT_EQ(n0().run(kind::inspect, a, 1).status, status::ok);
}

TEST_F(rules, holds_release_of_the_whole_lease_ends_a_confirmed_hold_too) {
    auto a = keyed_call({"a"});
    ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
    ASSERT_EQ(n0().run(kind::inspect, confirmed(a), 1).status, status::ok);
    a.scope = release_scope::whole_lease;
    EXPECT_EQ(n0().run(kind::release, a).status, status::ok);
    EXPECT_EQ(n0().lease("a"), "");
}

TEST_F(rules, holds_undo_leaves_the_idempotency_keys_of_other_holds) {
    const auto a = keyed_call({"a"});
    ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
    auto second = with_hold(a, 7);
    second.key = std::string(24, 'e');
    second.scope = release_scope::undone_hold;
    ASSERT_EQ(n0().run(kind::hold, second, 1).status, status::ok);
    ASSERT_EQ(n0().run(kind::undo, second).status, status::ok);
    const auto record = lease_record::parse(n0().lease("a"));
    ASSERT_TRUE(record);
    EXPECT_EQ(record->keys.find(second.key), std::string::npos);
    EXPECT_EQ(digest.find_in(record->keys).result, idempotency_digest::match::same);
}

}  // namespace
}  // namespace lockcore
