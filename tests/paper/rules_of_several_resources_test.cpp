// docs/protocol.md, SEVERAL RESOURCES: leases with one key for each resource. See rules_test.cpp.
#include <proto/lease_record.hpp>

#include "paper/admitted_nodes.hpp"

namespace lockcore {
namespace {

using fencegate::testing::call_of;
using fencegate::testing::call_of_owner;
using fencegate::testing::count_holds;
using fencegate::testing::nonce_of;
using fencegate::testing::rules;
using fencegate::testing::with_hold;
using kind = command_kind;
using status = reply_status;
using namespace std::chrono_literals;

TEST_F(rules, several_resources_are_taken_all_or_none_on_a_node) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('x', {"b"})).value, 1U);
    const std::string before = n0().all_keys();
    EXPECT_EQ(n0().run(kind::acquire, call_of('a', {"a", "b", "c"})).status, status::held);
    EXPECT_EQ(n0().all_keys(), before);
    n0().expire_lease("b");
    EXPECT_EQ(n0().run(kind::acquire, call_of('a', {"a", "b", "c"})).status, status::ok);
}

TEST_F(rules, several_resources_get_one_token_and_set_every_counter) {
    n0().set_counter("b", 6);
    n0().set_counter("c", 2);
    EXPECT_EQ(n0().run(kind::acquire, call_of('a', {"a", "b", "c"})).value, 7U);
    for (const char* name : {"a", "b", "c"}) {
        EXPECT_EQ(n0().counter(name), "7") << name;
        EXPECT_EQ(n0().token_of(name), "7") << name;
    }
}

TEST_F(rules, several_resources_are_confirmed_only_if_all_are_owned) {
    const auto a = call_of('a', {"a", "b"});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    n0().expire_lease("b");
    const std::string before = n0().all_keys();
    EXPECT_EQ(n0().run(kind::confirm, a, 5).status, status::lost);
    EXPECT_EQ(n0().all_keys(), before);
}

TEST_F(rules, several_resources_are_confirmed_only_if_no_counter_is_higher) {
    const auto a = call_of('a', {"a", "b"});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    n0().set_counter("b", 6);
    const std::string before = n0().all_keys();
    const node_reply past = n0().run(kind::confirm, a, 5);
    EXPECT_EQ(past.status, status::stale);
    EXPECT_EQ(past.value, 6U);
    EXPECT_EQ(n0().all_keys(), before);
    EXPECT_EQ(n0().run(kind::confirm, a, 8).status, status::ok);
    for (const char* name : {"a", "b"}) {
        EXPECT_EQ(n0().counter(name), "8") << name;
        EXPECT_EQ(n0().token_of(name), "8") << name;
    }
}

TEST_F(rules, several_resources_are_renewed_all_or_none) {
    const auto a = call_of('a', {"a", "b"}, 20s);
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {"a", "b"}, 2s)).value, 1U);
    n0().expire_lease("b");
    EXPECT_EQ(n0().run(kind::renew, a, 1).status, status::lost);
    EXPECT_EQ(n0().run(kind::inspect, a, 1).status, status::lost);
    EXPECT_LE(n0().time_left("a"), 2'000);
}

TEST_F(rules, several_resources_are_released_where_owned_and_say_lost) {
    const auto a = call_of('a', {"a", "b"});
    ASSERT_EQ(n0().run(kind::acquire, a).value, 1U);
    n0().expire_lease("b");
    ASSERT_EQ(n0().run(kind::acquire, call_of('x', {"b"})).status, status::ok);
    EXPECT_EQ(n0().run(kind::release, a).status, status::lost) << "one of the resources had another holder";
    EXPECT_EQ(n0().lease("a"), "");
    EXPECT_NE(n0().lease("b"), "");
}

// --- keys that differ
//
// A node that forgot gets a copy for each key, from nodes that may have missed different requests;
// each key expires on its own, and strangers may write under one of them.

const std::array keys{"a", "b"};

/// Leases on the keys `a` and `b`, one of which has an older state.
class differing_keys : public rules {
  protected:
    void write(const std::string& name, const std::string& lease) {
        n0().command({"SET", "fg:lease:" + name, lease, "PX", "20000"});
    }
    void write_counter(const std::string& name, const std::string& text) {
        n0().command({"SET", "fg:token:" + std::to_string(resource_name::parse(name)->bucket()), text});
    }
    /// Acquires the lease, runs a command for it, and puts the key `older` back to its state before.
    void run_except_on(const std::string& older, kind command, const lease_call& call) {
        token_ = n0().run(kind::acquire, a_).value;
        const std::string before = n0().lease(older);
        ASSERT_EQ(n0().run(command, call, token_).status, status::ok);
        write(older, before);
    }
    std::size_t holds_of(const std::string& name) {
        const auto record = lease_record::parse(n0().lease(name));
        return record ? record->holds.count() : 0;
    }

    const std::vector<std::string> names_{keys[0], keys[1]};
    lease_call a_ = call_of('a', names_);
    std::uint64_t token_ = 0;
};

TEST_F(differing_keys, holds_of_all_keys_are_joined) {
    for (const char* older : keys) {
        for (const kind command : {kind::renew, kind::release}) {
            run_except_on(older, kind::hold, with_hold(a_, 2));
            const std::size_t left = command == kind::release ? 1 : 2;
            EXPECT_EQ(count_holds(n0().run(command, a_, token_)), left);
            for (const char* name : keys) {
                EXPECT_EQ(holds_of(name), left) << name;
                n0().expire_lease(name);
            }
        }
    }
}

TEST_F(differing_keys, released_holds_of_all_keys_are_joined) {
    for (const char* older : keys) {
        ASSERT_EQ(n0().run(kind::hold, with_hold(a_, 2), n0().run(kind::acquire, a_).value).status, status::ok);
        run_except_on(older, kind::release, with_hold(a_, 2));
        EXPECT_EQ(count_holds(n0().run(kind::renew, a_, token_)), 1U);
        EXPECT_EQ(holds_of(older), 1U);
        for (const char* name : keys)
            n0().expire_lease(name);
    }
}

TEST_F(differing_keys, release_joins_the_tombstones_of_all_keys) {
    for (const char* older : keys) {
        const std::uint64_t token = n0().run(kind::acquire, a_).value;
        ASSERT_EQ(n0().run(kind::hold, with_hold(a_, 4), token).status, status::ok);
        const std::string before = n0().lease(older);
        ASSERT_EQ(n0().run(kind::hold, with_hold(a_, 2), token).status, status::ok);
        ASSERT_EQ(n0().run(kind::release, with_hold(a_, 2)).status, status::ok);
        write(older, before);
        EXPECT_EQ(count_holds(n0().run(kind::release, with_hold(a_, 4))), 1U);
        EXPECT_EQ(n0().run(kind::hold, with_hold(a_, 2), token).status, status::lost)
            << "released, whatever key had it";
        for (const char* name : keys)
            n0().expire_lease(name);
    }
}

TEST_F(differing_keys, renewals_and_times_of_all_keys_are_joined) {
    for (const char* older : keys) {
        run_except_on(older, kind::renew, a_);
        const node_reply seen = n0().run(kind::inspect, a_, token_);
        EXPECT_EQ(seen.value, 1U);
        EXPECT_LE(seen.remaining, 20s) << "the lease ends with its first key";
        const node_reply renewed = n0().run(kind::renew, a_, token_);
        EXPECT_EQ(renewed.value, 2U);
        EXPECT_GE(renewed.held, 10s) << "20 of 30 seconds were left";
        for (const char* name : keys)
            n0().expire_lease(name);
    }
}

TEST_F(differing_keys, held_says_the_longest_remaining_time) {
    for (const auto& [first, second] : {std::pair{5s, 20s}, std::pair{20s, 5s}}) {
        ASSERT_EQ(n0().run(kind::acquire, call_of('x', {keys[0]}, first)).status, status::ok);
        ASSERT_EQ(n0().run(kind::acquire, call_of('y', {keys[1]}, second)).status, status::ok);
        EXPECT_GT(n0().run(kind::acquire, a_).remaining, 19s);
        for (const char* name : keys) {
            n0().command({"PERSIST", "fg:lease:" + std::string(name)});
            EXPECT_LT(n0().run(kind::acquire, a_).remaining, 0s) << "a key without a ttl stays";
            n0().command({"PEXPIRE", "fg:lease:" + std::string(name), "10000"});
        }
        for (const char* name : keys)
            n0().expire_lease(name);
    }
}

TEST_F(differing_keys, foreign_counter_fails_only_its_own_lease) {
    for (const char* foreign : keys) {
        for (const char* name : keys)
            write_counter(name, "3");
        ASSERT_EQ(n0().run(kind::acquire, a_).value, 4U);
        write_counter(foreign, "x");
        const auto c = call_of('c', {"orders/1"});
        ASSERT_EQ(n0().run(kind::acquire, c).status, status::ok);
        const std::string before = n0().all_keys();
        const auto confirmed = n0().run_all(kind::confirm, {{a_, fencing_token{9}}, {c, fencing_token{1}}});
        EXPECT_EQ(confirmed[0].status, status::error) << foreign;
        EXPECT_EQ(confirmed[1].status, status::ok);
        EXPECT_EQ(n0().all_keys(), before);
        for (const char* name : {keys[0], keys[1], "orders/1"})
            n0().expire_lease(name);
        for (const kind command : {kind::acquire, kind::top_up}) {
            const auto granted = n0().run_all(command, {{a_, fencing_token{9}}, {c, fencing_token{9}}});
            EXPECT_EQ(granted[0].status, status::error) << foreign;
            EXPECT_EQ(granted[1].status, status::ok);
            n0().expire_lease("orders/1");
        }
        n0().command({"DEL", "fg:token:" + std::to_string(resource_name::parse("orders/1")->bucket())});
    }
}

TEST_F(differing_keys, owner_gets_no_lease_again_that_lacks_a_key) {
    for (const char* missing : keys) {
        ASSERT_EQ(n0().run(kind::acquire, call_of_owner('a', names_)).status, status::ok);
        n0().expire_lease(missing);
        auto again = call_of_owner('b', names_);
        again.wake_mark = "00000000000000ee";
        EXPECT_EQ(n0().run(kind::acquire, again).status, status::held) << missing;
        EXPECT_EQ(n0().lease(missing), "");
        n0().run(kind::release, call_of_owner('a', names_));
    }
}

TEST_F(differing_keys, owner_gets_no_lease_again_that_is_two) {
    ASSERT_EQ(n0().run(kind::acquire, call_of_owner('a', names_)).status, status::ok);
    const std::string other = n0().lease(keys[1]);
    n0().run(kind::release, call_of_owner('a', names_));
    ASSERT_EQ(n0().run(kind::acquire, call_of_owner('b', names_)).status, status::ok);
    EXPECT_EQ(n0().run(kind::acquire, call_of_owner('c', names_)).status, status::own);
    write(keys[1], other);
    EXPECT_EQ(n0().run(kind::acquire, call_of_owner('c', names_)).status, status::held);
}

TEST_F(differing_keys, hand_over_takes_a_lease_that_lacks_a_key) {
    for (const bool has_other_hold : {false, true}) {
        for (const char* missing : keys) {
            const std::uint64_t token = n0().run(kind::acquire, a_).value;
            if (has_other_hold) n0().run(kind::hold, with_hold(a_, 2), token);
            n0().expire_lease(missing);
            auto next = call_of('b', names_);
            next.previous = nonce_of('a');
            next.previous_hold = a_.hold;
            const node_reply reply = n0().run(kind::acquire, next);
            EXPECT_EQ(reply.status, has_other_hold ? status::other_holds : status::ok);
            EXPECT_FALSE(reply.took_over) << "the previous lease was not there as a whole";
            EXPECT_EQ(n0().lease(missing).empty(), has_other_hold);
            for (const char* name : keys)
                n0().expire_lease(name);
        }
    }
}

TEST_F(differing_keys, hand_over_changes_no_other_lease_of_its_own) {
    auto next = call_of('b', names_);
    ASSERT_EQ(n0().run(kind::acquire, next).status, status::ok);
    const std::string own = n0().lease(keys[1]);
    n0().run(kind::release, next);
    ASSERT_EQ(n0().run(kind::hold, with_hold(a_, 2), n0().run(kind::acquire, a_).value).status, status::ok);
    write(keys[1], own);
    next.previous = nonce_of('a');
    next.previous_hold = a_.hold;
    EXPECT_EQ(n0().run(kind::acquire, next).status, status::other_holds);
    EXPECT_EQ(n0().lease(keys[1]), own);
}

}  // namespace
}  // namespace lockcore
