// docs/protocol.md, "Rules R1 to R10": one test or more a rule, against the product's Lua scripts on real Redis nodes.
// What a rule says of the caller is played with its machine. README.md here says which test stands for which rule.
#include <proto/validity.hpp>

#include "paper/paper_nodes.hpp"

namespace lockcore {
namespace {

using fencegate::testing::call_of;
using fencegate::testing::caller;
using fencegate::testing::played_node;
using fencegate::testing::rules;
using kind = command_kind;
using status = reply_status;
using namespace std::chrono_literals;

constexpr std::uint64_t first_of_epoch_1 = tokens_per_epoch + 1;

// --- ADM, UNINIT

TEST_F(rules, adm_every_script_has_no_effect_when_the_request_was_built_for_another_run_id) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).status, status::ok);
    const std::string before = n0().all_keys();
    for (const kind k : {kind::release, kind::acquire, kind::confirm, kind::renew, kind::hold, kind::inspect,
                         kind::top_up, kind::look, kind::list, kind::undo}) {
        auto call = call_of('a', {r});
        call.cursor = "0";
        call.pattern = "fg:lease:*";
        EXPECT_EQ(n0().run_as(std::string(40, 'f'), k, call, 1).status, status::not_admitted) << static_cast<int>(k);
        EXPECT_EQ(n0().all_keys(), before) << static_cast<int>(k);
    }
}

TEST_F(rules, adm_every_script_has_no_effect_when_the_node_was_never_admitted) {
    n0().ask({"FLUSHALL"});
    for (const kind k : {kind::release, kind::acquire, kind::confirm, kind::renew, kind::hold, kind::inspect,
                         kind::top_up, kind::look, kind::list, kind::undo}) {
        auto call = call_of('a', {r});
        call.cursor = "0";
        call.pattern = "fg:lease:*";
        EXPECT_EQ(n0().run(k, call, 1).status, status::not_admitted) << static_cast<int>(k);
        EXPECT_EQ(n0().all_keys(), "") << static_cast<int>(k);
    }
}

// --- R1 ACQUIRE

TEST_F(rules, r1_acquire_takes_a_free_resource_under_the_next_counter_with_the_ttl) {
    EXPECT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    EXPECT_EQ(n0().token_of(r), "1");
    EXPECT_EQ(n0().counter(r), "1");
    EXPECT_GT(n0().time_left(r), 29'000);
    EXPECT_LE(n0().time_left(r), 30'000);
    EXPECT_EQ(n0().ask({"PTTL", "fg:token:" + std::to_string(resource_name::parse(r)->bucket())}), "-1")
        << "counters never expire";
    n0().run_out(r);
    EXPECT_EQ(n0().run(kind::acquire, call_of('b', {r})).value, 2U);
}

TEST_F(rules, r1_acquire_says_held_with_the_remaining_time_and_changes_nothing_when_it_is_anothers) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r}, 5s)).value, 1U);
    const std::string before = n0().all_keys();
    const node_reply held = n0().run(kind::acquire, call_of('b', {r}));
    EXPECT_EQ(held.status, status::held);
    EXPECT_GT(held.remaining, 4s);
    EXPECT_LE(held.remaining, 5s);
    EXPECT_EQ(held.value, 1U);
    EXPECT_EQ(n0().all_keys(), before);
}

TEST_F(rules, r1_acquire_counts_on_when_the_lease_is_the_callers_own) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    EXPECT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 2U);
    EXPECT_EQ(n0().token_of(r), "2");
}

TEST_F(rules, r1_acquire_counts_from_base_or_counter_whichever_is_higher) {
    n0().ask({"HSET", "fg:node", "base", std::to_string(tokens_per_epoch)});
    EXPECT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, first_of_epoch_1) << "base above the counter";
    n0().run_out(r);
    EXPECT_EQ(n0().run(kind::acquire, call_of('b', {r})).value, first_of_epoch_1 + 1) << "counter above base";
}

TEST_F(rules, r1_acquire_goes_up_to_the_hint_and_never_down_to_it) {
    auto a = call_of('a', {r});
    a.hint = fencing_token{40};
    EXPECT_EQ(n0().run(kind::acquire, a).value, 40U);
    n0().run_out(r);
    auto b = call_of('b', {r});
    b.hint = fencing_token{7};
    EXPECT_EQ(n0().run(kind::acquire, b).value, 41U);
}

TEST_F(rules, r1_acquire_says_overflow_and_changes_nothing_when_the_epochs_tokens_are_used_up) {
    n0().set_counter(r, tokens_per_epoch - 2);
    EXPECT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, tokens_per_epoch - 1) << "the last one";
    n0().run_out(r);
    const std::string before = n0().all_keys();
    EXPECT_EQ(n0().run(kind::acquire, call_of('b', {r})).status, status::overflow);
    EXPECT_EQ(n0().all_keys(), before);
    auto next_epoch = call_of('b', {r});
    next_epoch.hint = fencing_token{first_of_epoch_1};
    EXPECT_EQ(n0().run(kind::acquire, next_epoch).value, first_of_epoch_1) << "an epoch drawn since";
}

TEST_F(rules, r1_two_resources_of_one_bucket_share_a_counter_and_both_only_grow) {
    const std::string other = shares_the_counter_of(r);
    EXPECT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    EXPECT_EQ(n0().run(kind::acquire, call_of('b', {other})).value, 2U);
    n0().run_out(r);
    EXPECT_EQ(n0().run(kind::acquire, call_of('c', {r})).value, 3U);
}

TEST_F(rules, r1_many_leases_in_one_call_are_taken_one_by_one_when_some_are_held) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('x', {"b"})).status, status::ok);
    const auto replies =
        n0().run_all(kind::acquire, {{call_of('a', {"a"}), {}}, {call_of('b', {"b"}), {}}, {call_of('c', {"c"}), {}}});
    EXPECT_EQ(replies[0].status, status::ok);
    EXPECT_EQ(replies[1].status, status::held);
    EXPECT_EQ(replies[2].status, status::ok);
}

// --- R2, R4, R5: the caller's

TEST_F(rules, r2_the_token_is_the_highest_reply_of_a_majority) {
    n0().set_counter(r, 4);
    nodes[1].set_counter(r, 9);
    caller a(nodes, call_of('a', {r}));
    a.ask(0);
    EXPECT_EQ(a.token(), 0U) << "one reply of three chooses nothing";
    a.ask(1);
    EXPECT_EQ(a.token(), 10U);
}

TEST_F(rules, r4_one_round_is_enough_where_all_counters_agree) {
    caller a(nodes, call_of('a', {r}));
    a.ask(0);
    a.ask(1);
    EXPECT_TRUE(a.granted());
    EXPECT_FALSE(a.confirms(0) || a.confirms(1));
}

TEST_F(rules, r4_is_complete_only_when_a_majority_is_stamped_with_the_token) {
    nodes[1].set_counter(r, 1);
    caller a(nodes, call_of('a', {r}));
    a.ask(0);
    a.ask(1);
    EXPECT_FALSE(a.granted()) << "1 and 2: one stamp";
    EXPECT_TRUE(a.confirms(0));
    EXPECT_FALSE(a.confirms(1)) << "it replied exactly T";
    EXPECT_EQ(a.confirm(0), status::ok);
    EXPECT_TRUE(a.granted());
    EXPECT_EQ(a.token(), 2U);
    EXPECT_EQ(n0().token_of(r), "2");
    EXPECT_EQ(n0().counter(r), "2");
}

TEST_F(rules, r4_a_late_reply_of_exactly_the_token_is_a_stamp_and_a_higher_one_is_none) {
    nodes[1].set_counter(r, 1);
    nodes[2].set_counter(r, 1);
    caller a(nodes, call_of('a', {r}));
    a.ask(0);
    a.ask(1);
    a.ask(2);
    EXPECT_TRUE(a.granted()) << "n1 and n2 both said 2";

    nodes[2].set_counter("b", 5);
    nodes[1].set_counter("b", 1);
    caller b(nodes, call_of('b', {"b"}));
    b.ask(0);
    b.ask(1);
    b.ask(2);
    EXPECT_FALSE(b.granted()) << "6 is no stamp for 2";
    EXPECT_EQ(b.machine().stamps(), 1U);
}

TEST_F(rules, r5_stale_raises_the_token_drops_all_stamps_and_confirms_everywhere) {
    const std::string other = shares_the_counter_of(r);
    nodes[1].set_counter(r, 1);
    caller a(nodes, call_of('a', {r}));
    a.ask(0);
    a.ask(1);
    ASSERT_EQ(a.token(), 2U);
    n0().set_counter(r, 4);
    ASSERT_EQ(n0().run(kind::acquire, call_of('x', {other})).value, 5U);
    EXPECT_EQ(a.confirm(0), status::stale);
    EXPECT_EQ(n0().token_of(r), "1") << "STALE has no effect";
    EXPECT_EQ(a.token(), 5U);
    EXPECT_EQ(a.machine().stamps(), 0U);
    EXPECT_TRUE(a.confirms(0)) << "the node that reported it too";
    EXPECT_TRUE(a.confirms(1));
    a.confirm_all();
    EXPECT_TRUE(a.granted());
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

TEST_F(rules, r3_confirm_says_lost_without_effect_when_the_lease_is_not_the_callers) {
    EXPECT_EQ(n0().run(kind::confirm, call_of('a', {r}), 6).status, status::lost) << "there is none";
    EXPECT_EQ(n0().all_keys(), "");
    ASSERT_EQ(n0().run(kind::acquire, call_of('b', {r})).value, 1U);
    const std::string before = n0().all_keys();
    EXPECT_EQ(n0().run(kind::confirm, call_of('a', {r}), 6).status, status::lost) << "it is another's";
    EXPECT_EQ(n0().all_keys(), before);
}

TEST_F(rules, r3_confirm_says_stale_without_effect_when_counter_or_base_is_past_the_token) {
    const std::string other = shares_the_counter_of(r);
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    ASSERT_EQ(n0().run(kind::acquire, call_of('b', {other})).value, 2U);
    const std::string before = n0().all_keys();
    const node_reply past = n0().run(kind::confirm, call_of('a', {r}), 1);
    EXPECT_EQ(past.status, status::stale);
    EXPECT_EQ(past.value, 2U);
    EXPECT_EQ(n0().run(kind::confirm, call_of('a', {r}), 2).status, status::ok) << "eff = T is not past it";

    n0().ask({"HSET", "fg:node", "base", std::to_string(tokens_per_epoch)});
    const node_reply below_base = n0().run(kind::confirm, call_of('b', {other}), 3);
    EXPECT_EQ(below_base.status, status::stale);
    EXPECT_EQ(below_base.value, tokens_per_epoch);
    EXPECT_NE(n0().all_keys(), before);
}

TEST_F(rules, r3_confirm_never_cuts_the_time_that_is_left) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r}, 20s)).value, 1U);
    EXPECT_EQ(n0().run(kind::confirm, call_of('a', {r}, 1s), 6).status, status::ok);
    EXPECT_GT(n0().time_left(r), 19'000) << "a renewal may have been faster";
}

// --- R6

TEST_F(rules, r6_validity_is_ttl_less_time_spent_less_one_percent_and_two_milliseconds) {
    EXPECT_EQ(validity(10s, 0ns), 9'898ms);
    EXPECT_EQ(validity(10s, 100ms), 9'798ms);
    EXPECT_GT(validity(100ms, 96ms), 0us);
    EXPECT_LE(validity(100ms, 97ms), 0us) << "no grant";
}

// --- R7 RELEASE

TEST_F(rules, r7_release_deletes_the_callers_lease_and_never_touches_a_counter) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    EXPECT_EQ(n0().run(kind::release, call_of('a', {r})).status, status::ok);
    EXPECT_EQ(n0().lease(r), "");
    EXPECT_EQ(n0().counter(r), "1");
}

TEST_F(rules, r7_release_leaves_the_lease_alone_when_it_is_anothers) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('b', {r})).value, 1U);
    const std::string before = n0().all_keys();
    for (const kind k : {kind::release, kind::undo}) {
        EXPECT_EQ(n0().run(k, call_of('a', {r})).status, status::lost);
        EXPECT_EQ(n0().all_keys(), before);
    }
}

TEST_F(rules, r7_release_tells_each_waiter_that_left_its_mark) {
    played_node ear = n0();
    ear.connect();
    ASSERT_EQ(ear.ask({"SUBSCRIBE", "fg:wake:00000000000000ee"}), "subscribe fg:wake:00000000000000ee 1");
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    auto waits = call_of('b', {r});
    waits.mark = "00000000000000ee";
    ASSERT_EQ(n0().run(kind::acquire, waits).status, status::held);
    ASSERT_EQ(n0().run(kind::acquire, waits).status, status::held) << "again: it is told once all the same";
    EXPECT_EQ(n0().run(kind::release, call_of('a', {r})).told, 1U);
}

TEST_F(rules, r7_a_failed_attempt_is_undone_also_where_its_acquire_arrives_late) {
    ASSERT_EQ(nodes[1].run(kind::acquire, call_of('b', {r})).status, status::ok);
    ASSERT_EQ(nodes[2].run(kind::acquire, call_of('b', {r})).status, status::ok);
    caller a(nodes, call_of('a', {r}));
    const node_reply on_its_way = a.reach(0);
    a.ask(1);
    a.ask(2);
    ASSERT_EQ(a.machine().outcome(), acquire::verdict::locked);
    EXPECT_EQ(a.machine().undo_targets(), node_set{0b001}) << "the node that did not say no";
    EXPECT_EQ(n0().run(kind::undo, a.call()).status, status::ok);
    a.hear(0, on_its_way);
    EXPECT_EQ(a.machine().outcome(), acquire::verdict::locked);
    EXPECT_EQ(n0().lease(r), "");
}

// --- R8 READMIT

TEST_F(rules, r8_readmit_lets_the_live_process_vote_with_the_epochs_floor_and_keeps_leases_and_counters) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    const auto old = remember(0, r);
    restart_from(0, old);
    EXPECT_EQ(n0().run(kind::acquire, call_of('b', {r})).status, status::not_admitted);
    EXPECT_EQ(n0().admit(3), "OK");
    EXPECT_EQ(n0().ask({"HGET", "fg:node", "run"}), n0().run_id());
    EXPECT_EQ(n0().ask({"HGET", "fg:node", "base"}), std::to_string(3 * tokens_per_epoch));
    EXPECT_EQ(n0().lease(r), old.lease);
    EXPECT_EQ(n0().counter(r), "1");
}

TEST_F(rules, r8_readmit_says_already_and_keeps_the_first_epoch_when_another_was_faster) {
    restart(0);
    ASSERT_EQ(n0().admit(2), "OK");
    EXPECT_EQ(n0().admit(3), "ALREADY");
    EXPECT_EQ(n0().ask({"HGET", "fg:node", "base"}), std::to_string(2 * tokens_per_epoch));
}

TEST_F(rules, r8_readmit_says_gone_when_another_process_lives_there_by_now) {
    const std::string seen = n0().run_id();
    restart(0);
    const std::string claim = n0().claim();
    EXPECT_EQ(n0().readmit(seen, 2, claim), "GONE");
    EXPECT_EQ(n0().ask({"HGET", "fg:node", "run"}), "");
}

// --- R9

TEST_F(rules, r9_a_request_built_for_an_older_life_is_refused_by_the_node_that_forgot) {
    const std::string old = n0().run_id();
    restart(0);
    ASSERT_EQ(n0().admit(1), "OK");
    EXPECT_EQ(n0().run_as(old, kind::acquire, call_of('a', {r})).status, status::not_admitted);
    EXPECT_EQ(n0().lease(r), "");
}

// --- R10

TEST_F(rules, r10_a_flushed_node_is_out_and_what_was_drawn_before_the_flush_does_not_let_it_in) {
    restart(0);
    const std::string claim = n0().claim();  // looked at; an epoch is drawn
    n0().ask({"FLUSHALL"});
    EXPECT_EQ(n0().run(kind::acquire, call_of('a', {r})).status, status::not_admitted);
    EXPECT_EQ(n0().readmit(n0().run_id(), 1, claim), "GONE");
    n0().ask({"HSETNX", "fg:node", "claim", "another"});
    EXPECT_EQ(n0().readmit(n0().run_id(), 1, claim), "GONE");
    EXPECT_EQ(n0().readmit(n0().run_id(), 2, "another"), "OK");
}

// --- FORGETTING IN ONE LIFE

/// Commands after which a node has to be looked at before it votes; those by which it may have forgotten first.
const std::vector<std::vector<std::string>> losing = {
    {"REPLICAOF", "NO", "ONE"},           {"SLAVEOF", "NO", "ONE"}, {"SWAPDB", "1", "2"}, {"RENAME", "some", "other"},
    {"COPY", "some", "other", "REPLACE"}, {"MOVE", "some", "3"},    {"FLUSHDB"},          {"CONFIG", "RESETSTAT"}};

TEST_F(rules, forgetting_no_lease_is_given_or_said_to_live_once_a_command_ran) {
    std::vector<std::vector<std::string>> commands = losing;
    commands.push_back({"CONFIG", "SET", "slowlog-max-len", "100"});
    commands.push_back({"CONFIG", "SET", "appendonly", "no"});
    const auto a = call_of('a', {r});
    for (const auto& command : commands) {
        n0().ask({"FLUSHALL"});
        ASSERT_EQ(n0().admit(3), "OK");
        ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok) << command[0];
        n0().ask({"SET", "some", "x"});
        n0().ask({"SET", "other", "x"});
        n0().ask_words(command);
        n0().ask({"HSET", "fg:node", "compared", "1"});  // in another hundredth of a second
        const std::string before = n0().all_keys();
        for (const kind k : {kind::acquire, kind::confirm, kind::renew, kind::hold, kind::inspect, kind::top_up}) {
            EXPECT_EQ(n0().run(k, a, 3 * tokens_per_epoch + 1).status, status::not_admitted)
                << command[0] << ", " << static_cast<int>(k);
        }
        EXPECT_EQ(n0().all_keys(), before) << command[0];
    }
}

TEST_F(rules, forgetting_counts_are_compared_in_every_10_ms) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
    const std::string compared = n0().ask({"HGET", "fg:node", "compared"});
    ASSERT_GE(compared.size(), 12U) << "hundredths of a second of the node's clock";
    n0().ask({"CONFIG", "SET", "slowlog-max-len", "100"});
    for (const long long away : {-1LL, 60'000LL}) {
        n0().ask({"HSET", "fg:node", "compared", std::to_string(std::stoll(compared) + away)});
        EXPECT_EQ(n0().run(kind::renew, a, 1).status, status::not_admitted) << away;
    }
}

TEST_F(rules, forgetting_readmit_says_gone_when_a_command_was_counted_since_the_look) {
    for (const auto& command : losing) {
        n0().ask({"FLUSHALL"});
        const std::string claim = n0().claim(), marks = n0().marks();
        n0().ask({"SET", "some", "x"});
        n0().ask_words(command);
        n0().ask({"HSET", "fg:node", "claim", claim});  // a copy from after the look
        EXPECT_EQ(n0().readmit(n0().run_id(), 3, claim, marks), "GONE") << command[0];
        EXPECT_EQ(n0().readmit(n0().run_id(), 4, claim, n0().marks()), "OK") << "looked at again";
    }
}

TEST_F(rules, forgetting_new_marks_of_an_admitted_node_are_taken_for_settings_alone) {
    const auto a = call_of('a', {r});
    ASSERT_EQ(n0().run(kind::acquire, a).status, status::ok);
    n0().ask({"CONFIG", "SET", "slowlog-max-len", "100"});
    EXPECT_EQ(n0().readmit(n0().run_id(), 9, "any", "0 0 0"), "GONE") << "not those that are live";
    EXPECT_EQ(n0().readmit(n0().run_id(), 9, "any", n0().marks(), "no"), "ALREADY");
    EXPECT_EQ(n0().ask({"HGET", "fg:node", "base"}), "0") << "and its epoch stays";
    EXPECT_EQ(n0().ask({"HGET", "fg:node", "sync"}), "no");
    EXPECT_EQ(n0().run(kind::inspect, a, 1).status, status::ok);
    EXPECT_EQ(n0().readmit(n0().run_id(), 9, "any", n0().marks(), "yes"), "ALREADY");
    EXPECT_EQ(n0().ask({"HGET", "fg:node", "sync"}), "no") << "once not synced, never in this life";
    for (const auto& command : losing) {
        n0().ask({"SET", "some", "x"});
        n0().ask_words(command);
        EXPECT_NE(n0().readmit(n0().run_id(), 9, "any", n0().marks()), "OK") << command[0];
        n0().ask({"HDEL", "fg:node", "compared"});
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
    EXPECT_EQ(n0().run(kind::confirm, a, last - 3).value, last - 2) << "STALE tells it whole too";
    EXPECT_EQ(n0().run(kind::confirm, a, last - 1).status, status::ok);
    EXPECT_EQ(n0().counter(r), std::to_string(last - 1));
    EXPECT_EQ(n0().run(kind::renew, a, last - 1).status, status::ok);
    EXPECT_EQ(n0().token_of(r), std::to_string(last - 1));
    EXPECT_EQ(n0().run(kind::acquire, call_of('b', {r})).value, last - 1) << "HELD";
    n0().run_out(r);
    EXPECT_EQ(n0().run(kind::top_up, a, last - 1).value, last);
    EXPECT_EQ(n0().counter(r), std::to_string(last));
}

}  // namespace
}  // namespace lockcore
