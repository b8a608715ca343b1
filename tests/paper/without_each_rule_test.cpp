// tests/sim/mutations/table.tsv: tests that run the shortest trace which breaks a protocol without the rule, against
// the product's scripts and state machines, and expect that nothing breaks. The names say what would happen without the
// rule. That of R9 is in managed_nodes_test.cpp.
#include <proto/majority_round.hpp>

#include "paper/admitted_nodes.hpp"

namespace lockcore {
namespace {

using fencegate::testing::admitted_nodes;
using fencegate::testing::call_of;
using fencegate::testing::stepwise_attempt;
using kind = command_kind;
using status = reply_status;

class without_each_rule : public admitted_nodes {
  protected:
    majority_round::verdict run_round(kind k, const lease_call& call, std::uint64_t token) {
        majority_round answers(nodes.size());
        for (std::size_t n = 0; n < nodes.size(); ++n)
            answers.answered(static_cast<node_index>(n), nodes[n].run(k, call, token));
        return answers.outcome();
    }
    void set_counters(std::uint64_t n0, std::uint64_t n1, std::uint64_t n2) {
        nodes[0].set_counter(r, n0);
        nodes[1].set_counter(r, n1);
        nodes[2].set_counter(r, n2);
    }
    /// Grants a lease on n0 and n1 with token 1.
    void grant_on_first_two(stepwise_attempt& attempt) {
        attempt.acquire_on(0);
        attempt.acquire_on(1);
        ASSERT_EQ(attempt.token(), 1U);
    }
    void grant_on_last_two(stepwise_attempt& attempt) {
        attempt.acquire_on(1);
        attempt.acquire_on(2);
        attempt.deliver_all_confirms();
        ASSERT_TRUE(attempt.is_granted());
    }
    /// Expects that the lease with token 1 is held on no majority.
    void expect_uncounted(const stepwise_attempt& attempt) {
        for (const kind k : {kind::renew, kind::hold, kind::inspect})
            EXPECT_EQ(run_round(k, attempt.call(), 1), majority_round::verdict::uncounted);
    }
    /// Expects that n2 refuses to make the lease count by what it answered to an earlier TOP-UP.
    void expect_late_upgrade_refused(const stepwise_attempt& attempt, const node_reply& seen) {
        auto late = attempt.call();
        late.seen = std::to_string(seen.value);
        EXPECT_FALSE(nodes[2].run(kind::top_up, late, 1).counts);
        expect_uncounted(attempt);
    }
};

// c = 0,1,1. A: n0→1, n1→2, T = 2. A's lease on n0 expires; B: n0→2, n2→2. B's lease on n2 expires; A's delayed R1
// reaches n2→3, CONFIRM(A,2) is accepted there: A and B both hold 2.
TEST_F(without_each_rule, r3_eff_not_above_t_delayed_acquire_gives_token_twice) {
    set_counters(0, 1, 1);
    stepwise_attempt a(nodes, call_of('a', {r})), b(nodes, call_of('b', {r}));
    EXPECT_EQ(a.acquire_on(0).value, 1U);
    EXPECT_EQ(a.acquire_on(1).value, 2U);
    ASSERT_EQ(a.token(), 2U);
    nodes[0].expire_lease(r);
    EXPECT_EQ(b.acquire_on(0).value, 2U);
    EXPECT_EQ(b.acquire_on(2).value, 2U);
    ASSERT_TRUE(b.is_granted());
    EXPECT_EQ(b.token(), 2U);
    nodes[2].expire_lease(r);
    const node_reply late = a.deliver_acquire(2);
    EXPECT_EQ(late.value, 3U);
    EXPECT_EQ(nodes[2].run(kind::confirm, a.call(), 2).status, status::stale);
    a.deliver_reply(2, late);
    a.deliver_all_confirms();
    EXPECT_TRUE(!a.is_granted() || a.token() > b.token());
}

// A delayed readmission reaches a later process of the node and sets an epoch that was used already.
TEST_F(without_each_rule, r8_draw_after_read_delayed_readmission_reuses_epoch) {
    restart(0);
    const std::string first_life = nodes[0].run_id(), claim = nodes[0].claim();  // epoch 1 is drawn for this process
    restart(1);
    ASSERT_EQ(nodes[1].admit(1), "OK") << "epoch 1 is used on node 1";
    restart(0);
    EXPECT_EQ(nodes[0].readmit(first_life, 1, claim), "GONE");
    EXPECT_EQ(nodes[0].run(kind::acquire, call_of('a', {r})).status, status::not_admitted);
    EXPECT_EQ(nodes[0].admit(2), "OK");
    EXPECT_EQ(nodes[0].run(kind::acquire, call_of('a', {r})).value, 2 * tokens_per_epoch + 1);
}

// A gets replies 1, 2, B gets 2, 1: both take 2.
TEST_F(without_each_rule, confirming_round_crossed_replies_give_token_twice) {
    stepwise_attempt a(nodes, call_of('a', {r})), b(nodes, call_of('b', {r}));
    EXPECT_EQ(a.acquire_on(0).value, 1U);
    EXPECT_EQ(b.acquire_on(1).value, 1U);
    nodes[0].expire_lease(r);
    nodes[1].expire_lease(r);
    EXPECT_EQ(a.acquire_on(1).value, 2U);
    EXPECT_EQ(b.acquire_on(0).value, 2U);
    EXPECT_EQ(a.token(), 2U);
    EXPECT_EQ(b.token(), 2U);
    EXPECT_FALSE(a.is_granted()) << "one stamp each";
    EXPECT_FALSE(b.is_granted());
    EXPECT_EQ(a.deliver_confirm(0), status::lost);
    EXPECT_EQ(b.deliver_confirm(1), status::lost);
    a.acquire_on(2);
    b.acquire_on(2);
    a.deliver_all_confirms();
    b.deliver_all_confirms();
    EXPECT_TRUE(a.is_granted()) << "the third node decides";
    EXPECT_FALSE(b.is_granted());
}

// A: n0→1, n1→2; A's lease on n0 expires, B n0→2; CONFIRM(A,2) passes on n0; B n2→2: both 2.
TEST_F(without_each_rule, confirm_owner_test_lost_lease_gives_token_twice) {
    set_counters(0, 1, 1);
    stepwise_attempt a(nodes, call_of('a', {r})), b(nodes, call_of('b', {r}));
    a.acquire_on(0);
    a.acquire_on(1);
    ASSERT_EQ(a.token(), 2U);
    nodes[0].expire_lease(r);
    EXPECT_EQ(b.acquire_on(0).value, 2U);
    EXPECT_EQ(a.deliver_confirm(0), status::lost);
    EXPECT_EQ(b.acquire_on(2).value, 2U);
    EXPECT_TRUE(b.is_granted());
    EXPECT_FALSE(a.is_granted());
    a.acquire_on(2);
    EXPECT_EQ(a.machine().outcome(), acquire_machine::verdict::locked);
}

// A has 1 on n0, n1; n0 restarts empty and votes; B gets 1 on n0, n2.
TEST_F(without_each_rule, epochs_empty_node_gives_token_twice) {
    stepwise_attempt a(nodes, call_of('a', {r}));
    grant_on_first_two(a);
    restart(0);
    stepwise_attempt too_early(nodes, call_of('b', {r}));
    EXPECT_EQ(too_early.acquire_on(0).status, status::not_admitted);
    EXPECT_EQ(nodes[0].admit(1), "OK");
    stepwise_attempt b(nodes, call_of('c', {r}));
    b.acquire_on(0);
    b.acquire_on(2);
    b.deliver_all_confirms();
    ASSERT_TRUE(b.is_granted());
    EXPECT_EQ(b.token(), tokens_per_epoch + 1);
}

// With one node instead of a majority, that node restarts empty and gives the same token again.
TEST_F(without_each_rule, majority_single_restarted_node_gives_token_twice) {
    stepwise_attempt a(nodes, call_of('a', {r}));
    EXPECT_EQ(a.acquire_on(0).value, 1U);
    EXPECT_FALSE(a.is_granted()) << "one node of three is no majority";
    restart(0);
    ASSERT_EQ(nodes[0].admit(1), "OK");
    EXPECT_GT(nodes[0].run(kind::acquire, call_of('b', {r})).value, 1U) << "the counter starts at the new epoch";
}

// A RENEW that creates a lease: A regains a node after B was stamped there.
TEST_F(without_each_rule, renew_never_creates_regains_node_stamped_by_another) {
    stepwise_attempt a(nodes, call_of('a', {r})), b(nodes, call_of('b', {r}));
    a.acquire_on(0);
    a.acquire_on(1);
    ASSERT_TRUE(a.is_granted());
    nodes[1].expire_lease(r);
    grant_on_last_two(b);
    EXPECT_EQ(b.token(), 2U);
    nodes[1].expire_lease(r);
    EXPECT_EQ(run_round(kind::renew, a.call(), 1), majority_round::verdict::lost);
    EXPECT_EQ(nodes[1].lease(r), "");
}

// A late reply above T that counts as a stamp: A regains a node after B was stamped there.
TEST_F(without_each_rule, r4_exactly_t_late_higher_reply_regains_node) {
    set_counters(0, 1, 0);
    stepwise_attempt a(nodes, call_of('a', {r})), b(nodes, call_of('b', {r}));
    a.acquire_on(0);
    a.acquire_on(1);
    ASSERT_EQ(a.token(), 2U);
    nodes[0].expire_lease(r);
    EXPECT_EQ(b.acquire_on(0).value, 2U);
    EXPECT_EQ(b.acquire_on(2).value, 1U);
    b.deliver_all_confirms();
    ASSERT_TRUE(b.is_granted());
    ASSERT_EQ(b.token(), 2U);
    nodes[0].expire_lease(r);
    nodes[2].expire_lease(r);
    EXPECT_EQ(a.acquire_on(2).value, 3U) << "late, above T";
    EXPECT_FALSE(a.is_granted());
    a.deliver_all_confirms();
    EXPECT_TRUE(!a.is_granted() || a.token() > 2U);
    EXPECT_TRUE(a.is_granted()) << "with token 3 on n1 and n2";
}

// A's late ACQUIRE regains a node after a newer grant had used it: an old T seems to be alive.
TEST_F(without_each_rule, renew_token_equal_t_late_acquire_revives_old_lease) {
    stepwise_attempt a(nodes, call_of('a', {r})), b(nodes, call_of('b', {r}));
    a.acquire_on(0);
    a.acquire_on(1);
    ASSERT_TRUE(a.is_granted());
    nodes[1].expire_lease(r);
    EXPECT_EQ(b.acquire_on(1).value, 2U);
    EXPECT_EQ(b.acquire_on(2).value, 1U);
    b.deliver_all_confirms();
    ASSERT_TRUE(b.is_granted());
    ASSERT_EQ(b.token(), 2U);
    nodes[2].expire_lease(r);
    EXPECT_EQ(a.deliver_acquire(2).value, 3U);
    expect_uncounted(a);
}

// A completes 1 on n0, n1, n2; B takes n0, n1, completes 2; n1 rolls back to A's lease (AOF), is readmitted; A's
// re-entry sees (A,1) on n1, n2 and returns 1 after 2.
TEST_F(without_each_rule, t_not_below_base_rolled_back_node_revives_old_token) {
    stepwise_attempt a(nodes, call_of('a', {r})), b(nodes, call_of('b', {r}));
    a.acquire_on(0);
    a.acquire_on(1);
    a.acquire_on(2);
    ASSERT_EQ(a.token(), 1U);
    const auto old = save_state(1, r);
    nodes[0].expire_lease(r);
    nodes[1].expire_lease(r);
    b.acquire_on(0);
    b.acquire_on(1);
    ASSERT_TRUE(b.is_granted());
    ASSERT_EQ(b.token(), 2U);
    restart_with_state(1, old);
    ASSERT_EQ(nodes[1].admit(1), "OK");
    ASSERT_EQ(nodes[1].token_of(r), "1");
    for (const kind k : {kind::hold, kind::renew, kind::inspect})
        EXPECT_EQ(run_round(k, a.call(), 1), majority_round::verdict::uncounted);
}

// A takes T = 3 on n0 by STALE from another resource of the bucket, and on n1; the lease on n0 expires; B gets 2, 2 and
// completes 2 after 3. If STALE were a stamp, A would be complete without a lease on n0.
TEST_F(without_each_rule, r5_no_stamp_stale_reply_completes_without_lease) {
    nodes[1].set_counter(r, 1);
    stepwise_attempt a(nodes, call_of('a', {r}));
    EXPECT_EQ(a.acquire_on(0).value, 1U);
    EXPECT_EQ(a.acquire_on(1).value, 2U);
    ASSERT_EQ(a.token(), 2U);
    nodes[0].set_counter(r, 3);  // another resource of the bucket
    EXPECT_EQ(a.deliver_confirm(0), status::stale);
    EXPECT_EQ(a.token(), 3U);
    ASSERT_TRUE(a.has_pending_confirm(1));
    EXPECT_EQ(a.deliver_confirm(1), status::ok);
    EXPECT_FALSE(a.is_granted()) << "n1 alone is stamped with 3";
    nodes[0].expire_lease(r);
    EXPECT_EQ(a.deliver_confirm(0), status::lost);
    EXPECT_FALSE(a.is_granted());
    stepwise_attempt b(nodes, call_of('b', {r}));
    b.acquire_on(0);
    b.acquire_on(2);
    b.deliver_all_confirms();
    ASSERT_TRUE(b.is_granted());
    EXPECT_GT(b.token(), 3U);
}

// With the highest counter of a majority copied instead of an epoch, A's lost reply counts after the copy: both hold 1.
TEST_F(without_each_rule, epoch_copied_counter_accepts_lost_reply) {
    stepwise_attempt a(nodes, call_of('a', {r})), b(nodes, call_of('b', {r}));
    const node_reply lost = a.deliver_acquire(2);
    EXPECT_EQ(lost.value, 1U);
    restart(2);
    ASSERT_EQ(nodes[2].admit(1), "OK") << "the counters of the other nodes are 0";
    grant_on_last_two(b);
    a.acquire_on(0);
    a.deliver_reply(2, lost);
    EXPECT_TRUE(a.is_granted()) << "its two replies are both 1";
    EXPECT_GT(b.token(), a.token());
}

// TOP-UP that writes (nonce, T) whatever the counter is: A regains a node where a newer grant was stamped, and is alive
// on a majority together with B.
TEST_F(without_each_rule, top_up_counter_above_token_revives_old_lease) {
    stepwise_attempt a(nodes, call_of('a', {r})), b(nodes, call_of('b', {r}));
    grant_on_first_two(a);
    nodes[1].expire_lease(r);
    grant_on_last_two(b);
    ASSERT_EQ(b.token(), 2U);
    nodes[2].expire_lease(r);
    EXPECT_FALSE(nodes[2].run(kind::top_up, a.call(), 1).counts);
    expect_uncounted(a);
}

// UPGRADE without the comparison of the stamp: A was answered `6:0` by n2.
// A's lease expires there, B is granted on n1 and n2 and its lease expires on n2, where a late TOP-UP puts A's back.
// The late UPGRADE makes it count, and A renews on a majority while B holds n1 and has a newer token.
TEST_F(without_each_rule, upgrade_stamp_seen_late_upgrade_revives_old_lease) {
    set_counters(0, 0, 5);
    stepwise_attempt a(nodes, call_of('a', {r})), b(nodes, call_of('b', {r}));
    grant_on_first_two(a);
    const node_reply seen = nodes[2].run(kind::top_up, a.call(), 1);
    ASSERT_EQ(seen.value, 6U);
    nodes[1].expire_lease(r);
    nodes[2].expire_lease(r);
    grant_on_last_two(b);
    ASSERT_EQ(b.token(), 7U);
    nodes[2].expire_lease(r);
    EXPECT_FALSE(nodes[2].run(kind::top_up, a.call(), 1).counts);
    expect_late_upgrade_refused(a, seen);
}

// UPGRADE that compares the stamp alone: n2 loses newer data within one run id, after B was granted there, and has A's
// lease with its old stamp again. It is admitted anew, and a late UPGRADE finds the stamp that A was answered.
TEST_F(without_each_rule, upgrade_stamp_alone_restored_data_revive_old_lease) {
    set_counters(0, 0, 5);
    stepwise_attempt a(nodes, call_of('a', {r})), b(nodes, call_of('b', {r}));
    grant_on_first_two(a);
    const node_reply seen = nodes[2].run(kind::top_up, a.call(), 1);
    ASSERT_EQ(seen.value, 6U);
    const std::string old_lease = nodes[2].lease(r);
    nodes[1].expire_lease(r);
    nodes[2].expire_lease(r);
    grant_on_last_two(b);
    nodes[2].command({"SET", "fg:lease:" + r, old_lease, "PX", "30000"});
    nodes[2].set_counter(r, 6);
    nodes[2].command({"HDEL", "fg:node", "run", "claim"});
    ASSERT_EQ(nodes[2].admit(1), "OK");
    expect_late_upgrade_refused(a, seen);
}

// UPGRADE that leaves the counter: the next grant gets a number that is not above the stamp.
// So a rival and the lease could be stamped with one number on this node.
TEST_F(without_each_rule, upgrade_counter_left_below_stamp_gives_stamp_twice) {
    stepwise_attempt a(nodes, call_of('a', {r}));
    grant_on_first_two(a);
    restart(2);
    ASSERT_EQ(nodes[2].admit(1), "OK");
    auto call = a.call();
    ASSERT_EQ(nodes[2].run(kind::top_up, call, 1).value, tokens_per_epoch + 1);
    nodes[2].command({"DEL", "fg:token:" + std::to_string(resource_name::parse(r)->bucket())});
    call.seen = std::to_string(tokens_per_epoch + 1);
    ASSERT_TRUE(nodes[2].run(kind::top_up, call, 1).counts);
    nodes[2].expire_lease(r);
    EXPECT_EQ(nodes[2].run(kind::acquire, call_of('b', {r})).value, tokens_per_epoch + 2);
}

// FAST READMISSION with an installed lease that counts at once,
// and without the mark: a delayed INSTALL reaches a node that another gateway has readmitted,
// and which has granted the resource since.
TEST_F(without_each_rule, mark_delayed_install_replaces_a_newer_lease) {
    stepwise_attempt a(nodes, call_of('a', {r}));
    grant_on_first_two(a);
    restart(2);
    const std::string mark = nodes[2].mark(std::string(32, '1'));
    const std::string value = nodes[0].lease(r).insert(33, "0:");
    ASSERT_EQ(nodes[2].admit(1), "OK") << "by another gateway, when the quarantine was over";
    nodes[1].expire_lease(r);
    stepwise_attempt b(nodes, call_of('b', {r}));
    grant_on_last_two(b);
    EXPECT_NE(nodes[2].install(nodes[2].run_id(), mark, {{r, value, 30'000}}), "OK");
    EXPECT_EQ(run_round(kind::renew, b.call(), b.token()), majority_round::verdict::yes);
    // The same node forgets in this life, is marked again, and is read for again.
    nodes[2].command({"HDEL", "fg:node", "run", "claim"});
    nodes[2].mark(std::string(32, '2'));
    EXPECT_NE(nodes[2].install(nodes[2].run_id(), mark, {{r, value, 30'000}}), "OK");
    EXPECT_NE(nodes[2].readmit_marked(2, mark), "OK");
}

// FAST READMISSION with an epoch drawn before the reads, or with the stamp of the source:
// the installed lease counts on X without an UPGRADE,
// although its holder may have lost it on the other nodes meanwhile.
TEST_F(without_each_rule, installed_stamp_of_the_source_counts_at_once) {
    stepwise_attempt a(nodes, call_of('a', {r}));
    grant_on_first_two(a);
    restart(2);
    const std::string mark = nodes[2].mark(std::string(32, '1'));
    ASSERT_EQ(nodes[2].install(nodes[2].run_id(), mark, {{r, nodes[0].lease(r).insert(33, "0:"), 30'000}}), "OK");
    ASSERT_EQ(nodes[2].readmit_marked(1, mark), "OK");
    nodes[1].expire_lease(r);
    expect_uncounted(a);
    EXPECT_EQ(nodes[2].run(kind::acquire, call_of('b', {r})).status, status::held) << "but it refuses rivals";
}

}  // namespace
}  // namespace lockcore
