// docs/protocol.md, "What goes wrong without each rule": one test per row. Each runs the shortest trace that breaks a
// protocol without the rule against the product's scripts and state machines, and expects that nothing breaks. The
// names say what would happen without the rule. The row of R9 is tested in managed_nodes_test.cpp.
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
    majority_round::verdict run_round(kind k, const redis::lease_call& call, std::uint64_t token) {
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
    a.acquire_on(0);
    a.acquire_on(1);
    ASSERT_EQ(a.token(), 1U);
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
    b.acquire_on(1);
    b.acquire_on(2);
    b.deliver_all_confirms();
    ASSERT_TRUE(b.is_granted());
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
    for (const kind k : {kind::renew, kind::hold, kind::inspect})
        EXPECT_EQ(run_round(k, a.call(), 1), majority_round::verdict::lost);
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
        EXPECT_EQ(run_round(k, a.call(), 1), majority_round::verdict::lost);
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
    b.acquire_on(1);
    b.acquire_on(2);
    b.deliver_all_confirms();
    ASSERT_TRUE(b.is_granted());
    a.acquire_on(0);
    a.deliver_reply(2, lost);
    EXPECT_TRUE(a.is_granted()) << "its two replies are both 1";
    EXPECT_GT(b.token(), a.token());
}

}  // namespace
}  // namespace lockcore
