// docs/protocol.md, "What goes wrong without each rule": one test a row. The shortest trace that breaks a protocol
// without the rule is played against the product's scripts and machines, and ends well. (Without R9:
// managed_nodes_test.cpp.)
#include <proto/majority_round.hpp>

#include "paper/paper_nodes.hpp"

namespace lockcore {
namespace {

using fencegate::testing::call_of;
using fencegate::testing::caller;
using fencegate::testing::paper_nodes;
using kind = command_kind;
using status = reply_status;

class without_each_rule : public paper_nodes {
  protected:
    majority_round::verdict round(kind k, const redis::lease_call& call, std::uint64_t token) {
        majority_round all(nodes.size());
        for (std::size_t n = 0; n < nodes.size(); ++n)
            all.answered(static_cast<node_index>(n), nodes[n].run(k, call, token));
        return all.outcome();
    }
    void counters(std::uint64_t n0, std::uint64_t n1, std::uint64_t n2) {
        nodes[0].set_counter(r, n0);
        nodes[1].set_counter(r, n1);
        nodes[2].set_counter(r, n2);
    }
};

// c = 0,1,1. A: n0→1, n1→2, T = 2. A's lease on n0 runs out; B: n0→2, n2→2. B's lease on n2 runs out; A's delayed R1
// reaches n2→3, CONFIRM(A,2) is accepted there: A and B both hold 2.
TEST_F(without_each_rule, r3_eff_not_above_t_two_would_hold_2_when_a_delayed_acquire_regains_a_node) {
    counters(0, 1, 1);
    caller a(nodes, call_of('a', {r})), b(nodes, call_of('b', {r}));
    EXPECT_EQ(a.ask(0).value, 1U);
    EXPECT_EQ(a.ask(1).value, 2U);
    ASSERT_EQ(a.token(), 2U);
    nodes[0].run_out(r);
    EXPECT_EQ(b.ask(0).value, 2U);
    EXPECT_EQ(b.ask(2).value, 2U);
    ASSERT_TRUE(b.granted());
    EXPECT_EQ(b.token(), 2U);
    nodes[2].run_out(r);
    const node_reply late = a.reach(2);
    EXPECT_EQ(late.value, 3U);
    EXPECT_EQ(nodes[2].run(kind::confirm, a.call(), 2).status, status::stale) << "the rule";
    a.hear(2, late);
    a.confirm_all();
    EXPECT_TRUE(!a.granted() || a.token() > b.token());
}

// A delayed readmission lands in a later life of the node and brings an epoch that was used already.
TEST_F(without_each_rule, r8_an_epoch_would_come_twice_when_a_delayed_readmission_reaches_a_later_life) {
    restart(0);
    const std::string first_life = nodes[0].run_id(), claim = nodes[0].claim();  // epoch 1 is drawn for it
    restart(1);
    ASSERT_EQ(nodes[1].admit(1), "OK") << "used there";
    restart(0);
    EXPECT_EQ(nodes[0].readmit(first_life, 1, claim), "GONE");
    EXPECT_EQ(nodes[0].run(kind::acquire, call_of('a', {r})).status, status::not_admitted);
    EXPECT_EQ(nodes[0].admit(2), "OK");
    EXPECT_EQ(nodes[0].run(kind::acquire, call_of('a', {r})).value, 2 * tokens_per_epoch + 1);
}

// A gets replies 1, 2, B gets 2, 1: both take 2.
TEST_F(without_each_rule, confirming_round_two_would_take_2_when_they_meet_crosswise) {
    caller a(nodes, call_of('a', {r})), b(nodes, call_of('b', {r}));
    EXPECT_EQ(a.ask(0).value, 1U);
    EXPECT_EQ(b.ask(1).value, 1U);
    nodes[0].run_out(r);
    nodes[1].run_out(r);
    EXPECT_EQ(a.ask(1).value, 2U);
    EXPECT_EQ(b.ask(0).value, 2U);
    EXPECT_EQ(a.token(), 2U);
    EXPECT_EQ(b.token(), 2U);
    EXPECT_FALSE(a.granted()) << "one stamp each";
    EXPECT_FALSE(b.granted());
    EXPECT_EQ(a.confirm(0), status::lost);
    EXPECT_EQ(b.confirm(1), status::lost);
    a.ask(2);
    b.ask(2);
    a.confirm_all();
    b.confirm_all();
    EXPECT_TRUE(a.granted()) << "the third node decides";
    EXPECT_FALSE(b.granted());
}

// A: n0→1, n1→2; A's lease on n0 runs out, B n0→2; CONFIRM(A,2) passes on n0; B n2→2: both 2.
TEST_F(without_each_rule, confirms_test_of_the_owner_two_would_hold_2_when_the_lease_changed_hands) {
    counters(0, 1, 1);
    caller a(nodes, call_of('a', {r})), b(nodes, call_of('b', {r}));
    a.ask(0);
    a.ask(1);
    ASSERT_EQ(a.token(), 2U);
    nodes[0].run_out(r);
    EXPECT_EQ(b.ask(0).value, 2U);
    EXPECT_EQ(a.confirm(0), status::lost);
    EXPECT_EQ(b.ask(2).value, 2U);
    EXPECT_TRUE(b.granted());
    EXPECT_FALSE(a.granted());
    a.ask(2);
    EXPECT_EQ(a.machine().outcome(), acquire::verdict::locked);
}

// A has 1 on n0, n1; n0 restarts empty and votes; B gets 1 on n0, n2.
TEST_F(without_each_rule, epochs_one_token_would_be_given_twice_when_an_empty_node_votes) {
    caller a(nodes, call_of('a', {r}));
    a.ask(0);
    a.ask(1);
    ASSERT_EQ(a.token(), 1U);
    restart(0);
    caller too_early(nodes, call_of('b', {r}));
    EXPECT_EQ(too_early.ask(0).status, status::not_admitted);
    EXPECT_EQ(nodes[0].admit(1), "OK");
    caller b(nodes, call_of('c', {r}));
    b.ask(0);
    b.ask(2);
    b.confirm_all();
    ASSERT_TRUE(b.granted());
    EXPECT_EQ(b.token(), tokens_per_epoch + 1);
}

// That node restarts empty: the same token again.
TEST_F(without_each_rule, a_majority_one_token_would_be_given_twice_when_the_only_node_restarts) {
    caller a(nodes, call_of('a', {r}));
    EXPECT_EQ(a.ask(0).value, 1U);
    EXPECT_FALSE(a.granted()) << "one node of three gives nothing";
    restart(0);
    ASSERT_EQ(nodes[0].admit(1), "OK");
    EXPECT_GT(nodes[0].run(kind::acquire, call_of('b', {r})).value, 1U) << "nor does it count from nothing";
}

// A regains a node after B was stamped there.
TEST_F(without_each_rule, renew_that_creates_a_node_would_be_regained_when_another_was_stamped_there) {
    caller a(nodes, call_of('a', {r})), b(nodes, call_of('b', {r}));
    a.ask(0);
    a.ask(1);
    ASSERT_TRUE(a.granted());
    nodes[1].run_out(r);
    b.ask(1);
    b.ask(2);
    b.confirm_all();
    ASSERT_TRUE(b.granted());
    EXPECT_EQ(b.token(), 2U);
    nodes[1].run_out(r);
    EXPECT_EQ(round(kind::renew, a.call(), 1), majority_round::verdict::lost);
    EXPECT_EQ(nodes[1].lease(r), "");
}

// R4's "exactly T" for late replies: the same.
TEST_F(without_each_rule, r4_exactly_t_a_node_would_be_regained_when_a_late_reply_above_t_counted) {
    counters(0, 1, 0);
    caller a(nodes, call_of('a', {r})), b(nodes, call_of('b', {r}));
    a.ask(0);
    a.ask(1);
    ASSERT_EQ(a.token(), 2U);
    nodes[0].run_out(r);
    EXPECT_EQ(b.ask(0).value, 2U);
    EXPECT_EQ(b.ask(2).value, 1U);
    b.confirm_all();
    ASSERT_TRUE(b.granted());
    ASSERT_EQ(b.token(), 2U);
    nodes[0].run_out(r);
    nodes[2].run_out(r);
    EXPECT_EQ(a.ask(2).value, 3U) << "late, above T";
    EXPECT_FALSE(a.granted());
    a.confirm_all();
    EXPECT_TRUE(!a.granted() || a.token() > 2U);
    EXPECT_TRUE(a.granted()) << "under 3, on n1 and n2";
}

// A's late R1 regains a node after a newer grant had used it: a stale T looks alive.
TEST_F(without_each_rule, renews_token_equal_t_a_stale_lease_would_live_when_a_late_acquire_regains_a_node) {
    caller a(nodes, call_of('a', {r})), b(nodes, call_of('b', {r}));
    a.ask(0);
    a.ask(1);
    ASSERT_TRUE(a.granted());
    nodes[1].run_out(r);
    EXPECT_EQ(b.ask(1).value, 2U);
    EXPECT_EQ(b.ask(2).value, 1U);
    b.confirm_all();
    ASSERT_TRUE(b.granted());
    ASSERT_EQ(b.token(), 2U);
    nodes[2].run_out(r);
    EXPECT_EQ(a.reach(2).value, 3U);
    for (const kind k : {kind::renew, kind::hold, kind::inspect})
        EXPECT_EQ(round(k, a.call(), 1), majority_round::verdict::lost);
}

// A completes 1 on n0, n1, n2; B takes n0, n1, completes 2; n1 rolls back to A's lease (AOF), is readmitted; A's
// re-entry sees (A,1) on n1, n2 and returns 1 after 2.
TEST_F(without_each_rule, t_not_below_base_1_would_come_after_2_when_a_node_rolls_back) {
    caller a(nodes, call_of('a', {r})), b(nodes, call_of('b', {r}));
    a.ask(0);
    a.ask(1);
    a.ask(2);
    ASSERT_EQ(a.token(), 1U);
    const auto old = remember(1, r);
    nodes[0].run_out(r);
    nodes[1].run_out(r);
    b.ask(0);
    b.ask(1);
    ASSERT_TRUE(b.granted());
    ASSERT_EQ(b.token(), 2U);
    restart_from(1, old);
    ASSERT_EQ(nodes[1].admit(1), "OK");
    ASSERT_EQ(nodes[1].token_of(r), "1");
    for (const kind k : {kind::hold, kind::renew, kind::inspect})
        EXPECT_EQ(round(k, a.call(), 1), majority_round::verdict::lost);
}

// A takes T = 3 on n0 by STALE from another resource of the bucket, and n1; the lease on n0 runs out; B gets 2, 2 and
// completes 2 after 3. Counters shared by a bucket would otherwise let STALE's number stand without a lease under it.
TEST_F(without_each_rule, r5_no_stamp_a_grant_would_stand_on_a_node_that_never_took_it_when_stale_counted) {
    nodes[1].set_counter(r, 1);
    caller a(nodes, call_of('a', {r}));
    EXPECT_EQ(a.ask(0).value, 1U);
    EXPECT_EQ(a.ask(1).value, 2U);
    ASSERT_EQ(a.token(), 2U);
    nodes[0].set_counter(r, 3);  // another resource of the bucket
    EXPECT_EQ(a.confirm(0), status::stale);
    EXPECT_EQ(a.token(), 3U);
    ASSERT_TRUE(a.confirms(1));
    EXPECT_EQ(a.confirm(1), status::ok);
    EXPECT_FALSE(a.granted()) << "n1 alone is stamped with 3";
    nodes[0].run_out(r);
    EXPECT_EQ(a.confirm(0), status::lost);
    EXPECT_FALSE(a.granted());
    caller b(nodes, call_of('b', {r}));
    b.ask(0);
    b.ask(2);
    b.confirm_all();
    ASSERT_TRUE(b.granted());
    EXPECT_GT(b.token(), 3U);
}

// Copying a majority's highest counter instead of an epoch: A's lost reply on the node counts after the copy, both 1.
TEST_F(without_each_rule, an_epoch_two_would_hold_1_when_a_lost_reply_arrives_after_the_node_came_back) {
    caller a(nodes, call_of('a', {r})), b(nodes, call_of('b', {r}));
    const node_reply lost = a.reach(2);
    EXPECT_EQ(lost.value, 1U);
    restart(2);
    ASSERT_EQ(nodes[2].admit(1), "OK") << "the other counters say 0";
    b.ask(1);
    b.ask(2);
    b.confirm_all();
    ASSERT_TRUE(b.granted());
    a.ask(0);
    a.hear(2, lost);
    EXPECT_TRUE(a.granted()) << "its two replies do agree on 1";
    EXPECT_GT(b.token(), a.token());
}

}  // namespace
}  // namespace lockcore
