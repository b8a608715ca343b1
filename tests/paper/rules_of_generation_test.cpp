// docs/protocol.md, STORAGE GENERATION: the script ANNOUNCE, and the tokens that are granted after it.
// See rules_test.cpp.
#include "paper/admitted_nodes.hpp"

namespace lockcore {
namespace {

using fencegate::testing::call_of;
using fencegate::testing::rules;
using kind = command_kind;
using status = reply_status;

const std::string change_1 = "0b5e3c1e-0000-4000-8000-000000000001", change_2 = "0b5e3c1e-0000-4000-8000-000000000002";

TEST_F(rules, announce_writes_the_floor_and_changes_no_lease) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).status, status::ok);
    const std::string before = n0().all_keys();
    EXPECT_EQ(n0().announce(1'024, change_1), "ADMITTED");
    EXPECT_EQ(n0().command({"HGET", "fg:node", "floor"}), "1024 " + change_1);
    EXPECT_EQ(n0().all_keys(), before);
    EXPECT_EQ(n0().run(kind::renew, call_of('a', {r}), 1).status, status::ok) << "the lease lives on under its token";
}

TEST_F(rules, announce_is_repeated_by_any_gateway_of_the_same_change) {
    EXPECT_EQ(n0().announce(1'024, change_1), "ADMITTED");
    EXPECT_EQ(n0().announce(1'024, change_1), "ADMITTED");
}

TEST_F(rules, announce_is_refused_for_another_change_with_the_same_epoch) {
    EXPECT_EQ(n0().announce(1'024, change_1), "ADMITTED");
    EXPECT_EQ(n0().announce(1'024, change_2), "1024") << "drawn from a register that lacks the first change";
    EXPECT_EQ(n0().announce(1'023, change_2), "1024");
    EXPECT_EQ(n0().command({"HGET", "fg:node", "floor"}), "1024 " + change_1);
    EXPECT_EQ(n0().announce(2'047, change_2), "1024") << "epochs between may have been drawn unseen";
    EXPECT_EQ(n0().announce(2'048, change_2), "ADMITTED");
}

TEST_F(rules, announce_is_refused_where_the_base_is_too_close) {
    restart(0);
    ASSERT_EQ(n0().admit(1'030), "OK");
    EXPECT_EQ(n0().announce(1'030, change_1), "1030");
    EXPECT_EQ(n0().announce(2'053, change_1), "1030");
    EXPECT_EQ(n0().command({"HGET", "fg:node", "floor"}), "");
    EXPECT_EQ(n0().announce(2'054, change_1), "ADMITTED");
}

TEST_F(rules, announce_is_not_repeated_on_a_node_admitted_above_it) {
    EXPECT_EQ(n0().announce(1'024, change_1), "ADMITTED");
    restart(0);
    EXPECT_EQ(n0().announce(1'024, change_1), "OK");
    ASSERT_EQ(n0().admit(1'025), "OK");
    EXPECT_EQ(n0().announce(1'024, change_1), "1025");
}

TEST_F(rules, announce_to_a_node_that_is_not_admitted_says_so) {
    restart(0);
    EXPECT_EQ(n0().announce(1'024, change_1), "OK");
    EXPECT_EQ(n0().announce(1'024, change_2), "1024");
    EXPECT_EQ(n0().announce(1'023, change_1), "1024");
    ASSERT_EQ(n0().admit(5), "OK");
    EXPECT_EQ(n0().announce(1'024, change_1), "ADMITTED") << "READMIT keeps the floor";
    n0().command({"SWAPDB", "1", "2"});
    EXPECT_EQ(n0().announce(1'024, change_1), "OK") << "it may have forgotten in one life";
}

TEST_F(rules, announce_that_arrives_after_another_change_has_no_effect) {
    EXPECT_EQ(n0().announce(1'024, change_1), "ADMITTED");
    EXPECT_EQ(n0().announce_as(n0().run_id(), 9'000, change_2, 0), "CHANGED 1024") << "it was sent before change 1";
    EXPECT_EQ(n0().announce_as(n0().run_id(), 1'024, change_1, 0), "ADMITTED") << "the same change";
    n0().command({"HDEL", "fg:node", "floor"});
    EXPECT_EQ(n0().announce_as(n0().run_id(), 9'000, change_2, 1'024), "CHANGED 0") << "the node forgot";
    EXPECT_EQ(n0().announce_as(n0().run_id(), 9'000, change_2, 0), "ADMITTED");
}

TEST_F(rules, announce_has_no_effect_on_another_process) {
    const std::string old_run = n0().run_id();
    restart(0);
    EXPECT_EQ(n0().announce_as(old_run, 1'024, change_1, 0), "GONE");
    EXPECT_EQ(n0().command({"HGET", "fg:node", "floor"}), "");
}

}  // namespace
}  // namespace lockcore
