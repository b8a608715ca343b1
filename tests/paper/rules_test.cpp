// docs/protocol.md, "Rules R1 to R10": one test or more a rule, against the product's Lua scripts on real Redis nodes.
// Rules for the caller are tested with acquire_machine. The name of a test begins with its rule: `r5_…`, `top_up_…`.
#include <proto/lease_record.hpp>

#include "paper/admitted_nodes.hpp"

namespace lockcore {
namespace {

using fencegate::testing::call_of;
using fencegate::testing::node_client;
using fencegate::testing::rules;
using fencegate::testing::stepwise_attempt;
using kind = command_kind;
using status = reply_status;
using namespace std::chrono_literals;

constexpr std::uint64_t first_of_epoch_1 = tokens_per_epoch + 1;

// --- ADM, UNINIT

TEST_F(rules, adm_every_script_refuses_requests_of_another_run_id) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).status, status::ok);
    const std::string before = n0().all_keys();
    for (const kind k : {kind::release, kind::acquire, kind::confirm, kind::renew, kind::hold, kind::inspect,
                         kind::top_up, kind::look, kind::list, kind::undo, kind::close}) {
        auto call = call_of('a', {r});
        call.cursor = "0";
        call.pattern = "fg:lease:*";
        EXPECT_EQ(n0().run_as(std::string(40, 'f'), k, call, 1).status, status::not_admitted) << static_cast<int>(k);
        EXPECT_EQ(n0().all_keys(), before) << static_cast<int>(k);
    }
}

TEST_F(rules, adm_every_script_refuses_when_node_was_never_admitted) {
    n0().command({"FLUSHALL"});
    for (const kind k : {kind::release, kind::acquire, kind::confirm, kind::renew, kind::hold, kind::inspect,
                         kind::top_up, kind::look, kind::list, kind::undo, kind::close}) {
        auto call = call_of('a', {r});
        call.cursor = "0";
        call.pattern = "fg:lease:*";
        EXPECT_EQ(n0().run(k, call, 1).status, status::not_admitted) << static_cast<int>(k);
        EXPECT_EQ(n0().all_keys(), "") << static_cast<int>(k);
    }
}

// --- R1 ACQUIRE

TEST_F(rules, r1_acquire_takes_free_resource_with_next_counter_and_ttl) {
    EXPECT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    EXPECT_EQ(n0().token_of(r), "1");
    EXPECT_EQ(n0().counter(r), "1");
    EXPECT_GT(n0().time_left(r), 29'000);
    EXPECT_LE(n0().time_left(r), 30'000);
    EXPECT_EQ(n0().command({"PTTL", "fg:token:" + std::to_string(resource_name::parse(r)->bucket())}), "-1")
        << "counters never expire";
    n0().expire_lease(r);
    EXPECT_EQ(n0().run(kind::acquire, call_of('b', {r})).value, 2U);
}

TEST_F(rules, r1_acquire_says_held_without_effect_when_another_holds_it) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r}, 5s)).value, 1U);
    const std::string before = n0().all_keys();
    const node_reply held = n0().run(kind::acquire, call_of('b', {r}));
    EXPECT_EQ(held.status, status::held);
    EXPECT_GT(held.remaining, 4s);
    EXPECT_LE(held.remaining, 5s);
    EXPECT_EQ(held.value, 1U);
    EXPECT_EQ(n0().all_keys(), before);
}

TEST_F(rules, r1_acquire_increments_counter_for_the_callers_own_lease) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    EXPECT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 2U);
    EXPECT_EQ(n0().token_of(r), "2");
}

TEST_F(rules, r1_acquire_counts_from_base_or_counter_whichever_is_higher) {
    n0().command({"HSET", "fg:node", "base", std::to_string(tokens_per_epoch)});
    EXPECT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, first_of_epoch_1) << "base above the counter";
    n0().expire_lease(r);
    EXPECT_EQ(n0().run(kind::acquire, call_of('b', {r})).value, first_of_epoch_1 + 1) << "counter above base";
}

TEST_F(rules, r1_acquire_uses_the_hint_only_when_it_is_higher) {
    auto a = call_of('a', {r});
    a.hint = fencing_token{40};
    EXPECT_EQ(n0().run(kind::acquire, a).value, 40U);
    n0().expire_lease(r);
    auto b = call_of('b', {r});
    b.hint = fencing_token{7};
    EXPECT_EQ(n0().run(kind::acquire, b).value, 41U);
}

TEST_F(rules, r1_acquire_says_overflow_when_the_epoch_is_used_up) {
    n0().set_counter(r, tokens_per_epoch - 2);
    EXPECT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, tokens_per_epoch - 1) << "the last one";
    n0().expire_lease(r);
    const std::string before = n0().all_keys();
    EXPECT_EQ(n0().run(kind::acquire, call_of('b', {r})).status, status::overflow);
    EXPECT_EQ(n0().all_keys(), before);
    auto next_epoch = call_of('b', {r});
    next_epoch.hint = fencing_token{first_of_epoch_1};
    EXPECT_EQ(n0().run(kind::acquire, next_epoch).value, first_of_epoch_1) << "an epoch drawn since";
}

TEST_F(rules, r1_resources_of_one_bucket_share_a_growing_counter) {
    const std::string other = name_in_same_bucket(r);
    EXPECT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    EXPECT_EQ(n0().run(kind::acquire, call_of('b', {other})).value, 2U);
    n0().expire_lease(r);
    EXPECT_EQ(n0().run(kind::acquire, call_of('c', {r})).value, 3U);
}

TEST_F(rules, r1_many_leases_in_one_call_are_decided_separately) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('x', {"b"})).status, status::ok);
    const auto replies =
        n0().run_all(kind::acquire, {{call_of('a', {"a"}), {}}, {call_of('b', {"b"}), {}}, {call_of('c', {"c"}), {}}});
    EXPECT_EQ(replies[0].status, status::ok);
    EXPECT_EQ(replies[1].status, status::held);
    EXPECT_EQ(replies[2].status, status::ok);
}

// --- R2, R4, R5: rules for the caller

TEST_F(rules, r2_the_token_is_the_highest_reply_of_a_majority) {
    n0().set_counter(r, 4);
    nodes[1].set_counter(r, 9);
    stepwise_attempt a(nodes, call_of('a', {r}));
    a.acquire_on(0);
    EXPECT_EQ(a.token(), 0U) << "one reply of three is no majority";
    a.acquire_on(1);
    EXPECT_EQ(a.token(), 10U);
}

TEST_F(rules, r4_one_round_is_enough_where_all_counters_agree) {
    stepwise_attempt a(nodes, call_of('a', {r}));
    a.acquire_on(0);
    a.acquire_on(1);
    EXPECT_TRUE(a.is_granted());
    EXPECT_FALSE(a.has_pending_confirm(0) || a.has_pending_confirm(1));
}

TEST_F(rules, r4_is_complete_only_when_a_majority_is_stamped) {
    nodes[1].set_counter(r, 1);
    stepwise_attempt a(nodes, call_of('a', {r}));
    a.acquire_on(0);
    a.acquire_on(1);
    EXPECT_FALSE(a.is_granted()) << "1 and 2: one stamp";
    EXPECT_TRUE(a.has_pending_confirm(0));
    EXPECT_FALSE(a.has_pending_confirm(1)) << "it replied exactly T";
    EXPECT_EQ(a.deliver_confirm(0), status::ok);
    EXPECT_TRUE(a.is_granted());
    EXPECT_EQ(a.token(), 2U);
    EXPECT_EQ(n0().token_of(r), "2");
    EXPECT_EQ(n0().counter(r), "2");
}

TEST_F(rules, r4_a_late_reply_is_a_stamp_only_if_it_equals_the_token) {
    nodes[1].set_counter(r, 1);
    nodes[2].set_counter(r, 1);
    stepwise_attempt a(nodes, call_of('a', {r}));
    a.acquire_on(0);
    a.acquire_on(1);
    a.acquire_on(2);
    EXPECT_TRUE(a.is_granted()) << "n1 and n2 both said 2";

    nodes[2].set_counter("b", 5);
    nodes[1].set_counter("b", 1);
    stepwise_attempt b(nodes, call_of('b', {"b"}));
    b.acquire_on(0);
    b.acquire_on(1);
    b.acquire_on(2);
    EXPECT_FALSE(b.is_granted()) << "6 is no stamp for 2";
    EXPECT_EQ(b.machine().stamps(), 1U);
}

TEST_F(rules, r5_stale_raises_token_drops_stamps_and_confirms_everywhere) {
    const std::string other = name_in_same_bucket(r);
    nodes[1].set_counter(r, 1);
    stepwise_attempt a(nodes, call_of('a', {r}));
    a.acquire_on(0);
    a.acquire_on(1);
    ASSERT_EQ(a.token(), 2U);
    n0().set_counter(r, 4);
    ASSERT_EQ(n0().run(kind::acquire, call_of('x', {other})).value, 5U);
    EXPECT_EQ(a.deliver_confirm(0), status::stale);
    EXPECT_EQ(n0().token_of(r), "1") << "STALE has no effect";
    EXPECT_EQ(a.token(), 5U);
    EXPECT_EQ(a.machine().stamps(), 0U);
    EXPECT_TRUE(a.has_pending_confirm(0)) << "the node that reported it too";
    EXPECT_TRUE(a.has_pending_confirm(1));
    a.deliver_all_confirms();
    EXPECT_TRUE(a.is_granted());
    EXPECT_EQ(n0().token_of(r), "5");
    EXPECT_EQ(nodes[1].token_of(r), "5");
}

// --- R3 CONFIRM

TEST_F(rules, r3_confirm_sets_counter_token_and_time) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r}, 1s)).value, 1U);
    EXPECT_EQ(n0().run(kind::confirm, call_of('a', {r}, 20s), 6).status, status::ok);
    EXPECT_EQ(n0().token_of(r), "6");
    EXPECT_EQ(n0().counter(r), "6");
    EXPECT_GT(n0().time_left(r), 19'000);
}

TEST_F(rules, r3_confirm_says_lost_without_effect_when_not_the_owner) {
    EXPECT_EQ(n0().run(kind::confirm, call_of('a', {r}), 6).status, status::lost) << "there is none";
    EXPECT_EQ(n0().all_keys(), "");
    ASSERT_EQ(n0().run(kind::acquire, call_of('b', {r})).value, 1U);
    const std::string before = n0().all_keys();
    EXPECT_EQ(n0().run(kind::confirm, call_of('a', {r}), 6).status, status::lost) << "it is another's";
    EXPECT_EQ(n0().all_keys(), before);
}

TEST_F(rules, r3_confirm_says_stale_when_counter_or_base_is_above_token) {
    const std::string other = name_in_same_bucket(r);
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    ASSERT_EQ(n0().run(kind::acquire, call_of('b', {other})).value, 2U);
    const std::string before = n0().all_keys();
    const node_reply past = n0().run(kind::confirm, call_of('a', {r}), 1);
    EXPECT_EQ(past.status, status::stale);
    EXPECT_EQ(past.value, 2U);
    EXPECT_EQ(n0().run(kind::confirm, call_of('a', {r}), 2).status, status::ok) << "eff = T is not above T";

    n0().command({"HSET", "fg:node", "base", std::to_string(tokens_per_epoch)});
    const node_reply below_base = n0().run(kind::confirm, call_of('b', {other}), 3);
    EXPECT_EQ(below_base.status, status::stale);
    EXPECT_EQ(below_base.value, tokens_per_epoch);
    EXPECT_NE(n0().all_keys(), before);
}

TEST_F(rules, r3_confirm_never_shortens_the_remaining_time) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r}, 20s)).value, 1U);
    EXPECT_EQ(n0().run(kind::confirm, call_of('a', {r}, 1s), 6).status, status::ok);
    EXPECT_GT(n0().time_left(r), 19'000) << "a renewal may have set a longer time";
}

// --- R6

TEST_F(rules, r6_validity_is_ttl_less_elapsed_less_drift_allowance) {
    EXPECT_EQ(validity(10s, 0ns), 9'898ms);
    EXPECT_EQ(validity(10s, 100ms), 9'798ms);
    EXPECT_GT(validity(100ms, 96ms), 0us);
    EXPECT_LE(validity(100ms, 97ms), 0us) << "no grant";
}

// --- R7 RELEASE

TEST_F(rules, r7_release_deletes_the_lease_and_keeps_the_counter) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    EXPECT_EQ(n0().run(kind::release, call_of('a', {r})).status, status::ok);
    EXPECT_EQ(n0().lease(r), "");
    EXPECT_EQ(n0().counter(r), "1");
}

TEST_F(rules, r7_release_keeps_a_lease_of_another_owner) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('b', {r})).value, 1U);
    const std::string before = n0().all_keys();
    for (const kind k : {kind::release, kind::undo}) {
        EXPECT_EQ(n0().run(k, call_of('a', {r})).status, status::lost);
        EXPECT_EQ(n0().all_keys(), before);
    }
}

TEST_F(rules, r7_release_notifies_each_mark_once) {
    node_client subscriber = n0();
    subscriber.connect();
    ASSERT_EQ(subscriber.command({"SUBSCRIBE", "fg:wake:00000000000000ee"}), "subscribe fg:wake:00000000000000ee 1");
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    auto waiting_call = call_of('b', {r});
    waiting_call.wake_mark = "00000000000000ee";
    ASSERT_EQ(n0().run(kind::acquire, waiting_call).status, status::held);
    ASSERT_EQ(n0().run(kind::acquire, waiting_call).status, status::held) << "the mark is stored once";
    EXPECT_EQ(n0().run(kind::release, call_of('a', {r})).notified_waiters, 1U);
}

TEST_F(rules, r7_a_failed_attempt_is_undone_where_acquire_arrives_late) {
    ASSERT_EQ(nodes[1].run(kind::acquire, call_of('b', {r})).status, status::ok);
    ASSERT_EQ(nodes[2].run(kind::acquire, call_of('b', {r})).status, status::ok);
    stepwise_attempt a(nodes, call_of('a', {r}));
    const node_reply acquire_reply = a.deliver_acquire(0);
    a.acquire_on(1);
    a.acquire_on(2);
    ASSERT_EQ(a.machine().outcome(), acquire_machine::verdict::locked);
    EXPECT_EQ(a.machine().undo_targets(), node_set{0b001}) << "the node that did not refuse";
    EXPECT_EQ(n0().run(kind::undo, a.call()).status, status::ok);
    a.deliver_reply(0, acquire_reply);
    EXPECT_EQ(a.machine().outcome(), acquire_machine::verdict::locked);
    EXPECT_EQ(n0().lease(r), "");
}

// --- R8 READMIT

TEST_F(rules, r8_readmit_sets_run_id_and_base_and_keeps_the_data) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    const auto old = save_state(0, r);
    restart_with_state(0, old);
    EXPECT_EQ(n0().run(kind::acquire, call_of('b', {r})).status, status::not_admitted);
    EXPECT_EQ(n0().admit(3), "OK");
    EXPECT_EQ(n0().command({"HGET", "fg:node", "run"}), n0().run_id());
    EXPECT_EQ(n0().command({"HGET", "fg:node", "base"}), std::to_string(3 * tokens_per_epoch));
    EXPECT_EQ(n0().lease(r), old.lease);
    EXPECT_EQ(n0().counter(r), "1");
}

TEST_F(rules, r8_readmit_says_already_and_keeps_the_first_epoch) {
    restart(0);
    ASSERT_EQ(n0().admit(2), "OK");
    EXPECT_EQ(n0().admit(3), "ALREADY");
    EXPECT_EQ(n0().command({"HGET", "fg:node", "base"}), std::to_string(2 * tokens_per_epoch));
}

TEST_F(rules, r8_readmit_says_gone_when_the_process_was_replaced) {
    const std::string seen = n0().run_id();
    restart(0);
    const std::string claim = n0().claim();
    EXPECT_EQ(n0().readmit(seen, 2, claim), "GONE");
    EXPECT_EQ(n0().command({"HGET", "fg:node", "run"}), "");
}

// --- R9

TEST_F(rules, r9_a_request_for_an_earlier_run_id_is_refused) {
    const std::string old = n0().run_id();
    restart(0);
    ASSERT_EQ(n0().admit(1), "OK");
    EXPECT_EQ(n0().run_as(old, kind::acquire, call_of('a', {r})).status, status::not_admitted);
    EXPECT_EQ(n0().lease(r), "");
}

// --- R10

TEST_F(rules, r10_a_flushed_node_refuses_an_epoch_drawn_before_the_flush) {
    restart(0);
    const std::string claim = n0().claim();  // the node is inspected and an epoch drawn
    n0().command({"FLUSHALL"});
    EXPECT_EQ(n0().run(kind::acquire, call_of('a', {r})).status, status::not_admitted);
    EXPECT_EQ(n0().readmit(n0().run_id(), 1, claim), "GONE");
    n0().command({"HSETNX", "fg:node", "claim", "another"});
    EXPECT_EQ(n0().readmit(n0().run_id(), 1, claim), "GONE");
    EXPECT_EQ(n0().readmit(n0().run_id(), 2, "another"), "OK");
}

// --- FORGETTING IN ONE LIFE

/// Commands by which a node may lose data; it must be inspected again before it votes.
const std::vector<std::vector<std::string>> data_losing_commands = {
    {"REPLICAOF", "NO", "ONE"},           {"SLAVEOF", "NO", "ONE"}, {"SWAPDB", "1", "2"}, {"RENAME", "some", "other"},
    {"COPY", "some", "other", "REPLACE"}, {"MOVE", "some", "3"},    {"FLUSHDB"},          {"CONFIG", "RESETSTAT"}};

TEST_F(rules, forgetting_no_script_succeeds_after_a_counted_command) {
    std::vector<std::vector<std::string>> commands = data_losing_commands;
    commands.push_back({"CONFIG", "SET", "slowlog-max-len", "100"});
    commands.push_back({"CONFIG", "SET", "appendonly", "no"});
    commands.push_back({"ACL", "SETUSER", "worker"});
    commands.push_back({"ACL", "DELUSER", "worker"});
    const auto a = call_of('a', {r});
    for (const auto& command : commands) {
        n0().command({"FLUSHALL"});
        ASSERT_EQ(n0().admit(3), "OK");
        ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok) << command[0];
        n0().command({"SET", "some", "x"});
        n0().command({"SET", "other", "x"});
        n0().command(command);
        n0().command({"HSET", "fg:node", "compared", "1"});  // as in another 10 ms
        const std::string before = n0().all_keys();
        for (const kind k : {kind::acquire, kind::confirm, kind::renew, kind::hold, kind::inspect, kind::top_up}) {
            EXPECT_EQ(n0().run(k, a, 3 * tokens_per_epoch + 1).status, status::not_admitted)
                << command[0] << ", " << static_cast<int>(k);
        }
        EXPECT_EQ(n0().all_keys(), before) << command[0];
    }
}

TEST_F(rules, forgetting_marks_are_compared_once_in_each_10_ms) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
    const std::string compared = n0().command({"HGET", "fg:node", "compared"});
    ASSERT_GE(compared.size(), 12U) << "hundredths of a second of the node's clock";
    n0().command({"CONFIG", "SET", "slowlog-max-len", "100"});
    for (const long long offset : {-1LL, 60'000LL}) {
        n0().command({"HSET", "fg:node", "compared", std::to_string(std::stoll(compared) + offset)});
        EXPECT_EQ(n0().run(kind::renew, a, 1).status, status::not_admitted) << offset;
    }
}

TEST_F(rules, forgetting_readmit_says_gone_when_marks_changed) {
    for (const auto& command : data_losing_commands) {
        n0().command({"FLUSHALL"});
        const std::string claim = n0().claim(), marks = n0().marks();
        n0().command({"SET", "some", "x"});
        n0().command(command);
        n0().command({"HSET", "fg:node", "claim", claim});  // as in a copy that was made after the inspection
        EXPECT_EQ(n0().readmit(n0().run_id(), 3, claim, marks), "GONE") << command[0];
        EXPECT_EQ(n0().readmit(n0().run_id(), 4, claim, n0().marks()), "OK") << "after another inspection";
    }
}

TEST_F(rules, forgetting_readmit_updates_marks_for_config_set_only) {
    n0().command({"HSET", "fg:node", "sync", "yes"});
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
    n0().command({"CONFIG", "SET", "slowlog-max-len", "100"});
    EXPECT_EQ(n0().readmit(n0().run_id(), 9, "any", "0 0 0"), "GONE") << "the marks are not the current ones";
    EXPECT_EQ(n0().readmit(n0().run_id(), 9, "any", n0().marks(), "yes"), "ALREADY");
    EXPECT_EQ(n0().command({"HGET", "fg:node", "sync"}), "yes");
    EXPECT_EQ(n0().readmit(n0().run_id(), 9, "any", n0().marks(), "no"), "ALREADY");
    EXPECT_EQ(n0().command({"HGET", "fg:node", "base"}), "0") << "the epoch does not change";
    EXPECT_EQ(n0().command({"HGET", "fg:node", "sync"}), "no");
    EXPECT_EQ(n0().run(kind::inspect, a, 1).status, status::ok);
    EXPECT_EQ(n0().readmit(n0().run_id(), 9, "any", n0().marks(), "yes"), "ALREADY");
    EXPECT_EQ(n0().command({"HGET", "fg:node", "sync"}), "no") << "`no` stays for this life of the node";
    for (const auto& command : data_losing_commands) {
        n0().command({"SET", "some", "x"});
        n0().command(command);
        EXPECT_NE(n0().readmit(n0().run_id(), 9, "any", n0().marks()), "OK") << command[0];
        n0().command({"HDEL", "fg:node", "compared"});
        EXPECT_EQ(n0().run(kind::inspect, a, 1).status, status::not_admitted) << command[0];
    }
}

// --- Lua prints 14 digits

TEST_F(rules, lua_counters_keep_every_digit_up_to_the_last_token) {
    constexpr std::uint64_t last = (std::uint64_t{1} << 53) - 1;
    n0().set_counter(r, last - 3);
    const auto a = call_of('a', {r});
    EXPECT_EQ(n0().run(kind::acquire, a).value, last - 2);
    EXPECT_EQ(n0().counter(r), std::to_string(last - 2));
    EXPECT_EQ(n0().token_of(r), std::to_string(last - 2));
    EXPECT_EQ(n0().run(kind::confirm, a, last - 3).value, last - 2) << "STALE reports every digit too";
    EXPECT_EQ(n0().run(kind::confirm, a, last - 1).status, status::ok);
    EXPECT_EQ(n0().counter(r), std::to_string(last - 1));
    EXPECT_EQ(n0().run(kind::renew, a, last - 1).status, status::ok);
    EXPECT_EQ(n0().token_of(r), std::to_string(last - 1));
    EXPECT_EQ(n0().run(kind::acquire, call_of('b', {r})).value, last - 1) << "HELD";
    n0().expire_lease(r);
    EXPECT_EQ(n0().run(kind::top_up, a, last - 1).value, last);
    EXPECT_EQ(n0().counter(r), std::to_string(last));
    auto upgrade = a;
    upgrade.seen = std::to_string(last);
    EXPECT_EQ(n0().run(kind::top_up, upgrade, last - 1).value, last);
    EXPECT_EQ(n0().run(kind::inspect, a, last - 2).value, last) << "the stamp of a lease that does not count";
}

}  // namespace
}  // namespace lockcore
