// When a quarantined node gets copies of the leases of others: docs/protocol.md, FAST READMISSION.
#include <proto/node_supervisor.hpp>

#include <gtest/gtest.h>

namespace lockcore {
namespace {

using node_action = node_supervisor::action;
using namespace std::chrono_literals;

constexpr monotonic_time restart_time{1h};
const node_record forgot{true, epoch{9}, "an older life", false};

class supervisor_copying : public testing::Test {
  protected:
    supervisor_copying() {
        facts_.run_id = "run-a";
        facts_.role = "master";
        facts_.maxmemory_policy = "noeviction";
        facts_.claim = "claim-1";
        facts_.kept_unsynced = true;
        s_.connected();
        s_.identified(facts_, restart_time);
    }

    node_facts facts_;
    node_supervisor s_{60s, true};
};

TEST_F(supervisor_copying, quarantined_node_gets_copies_and_is_admitted_with_their_mark) {
    EXPECT_EQ(s_.record_found(forgot, restart_time).next, node_action::copy_leases);
    EXPECT_EQ(s_.state(), node_state::quarantined);
    EXPECT_EQ(s_.copy_mark(), "");
    EXPECT_EQ(s_.leases_copied("run-a 0 0 0 digits", restart_time + 1s).next, node_action::draw_epoch)
        << "the draw follows the reads";
    EXPECT_EQ(s_.epoch_drawn(epoch{10}).next, node_action::readmit);
    EXPECT_EQ(s_.copy_mark(), "run-a 0 0 0 digits");
}

TEST_F(supervisor_copying, copy_for_a_life_that_has_ended_is_not_used) {
    s_.record_found(forgot, restart_time);
    facts_.run_id = "run-b";
    s_.identified(facts_, restart_time + 1s);
    EXPECT_EQ(s_.leases_copied("run-a 0 0 0 digits", restart_time + 1s).next, node_action::identify);
    EXPECT_EQ(s_.copy_mark(), "");
}

TEST_F(supervisor_copying, node_that_forgot_nothing_gets_no_copies) {
    EXPECT_EQ(s_.record_found({}, restart_time).next, node_action::draw_epoch);
    EXPECT_EQ(s_.copy_mark(), "") << "READMIT requires no mark";
}

TEST_F(supervisor_copying, another_thread_of_the_process_waits) {
    node_supervisor follower(60s, false);
    follower.connected();
    follower.identified(facts_, restart_time);
    const auto step = follower.record_found(forgot, restart_time);
    EXPECT_EQ(step.next, node_action::identify);
    EXPECT_EQ(step.delay, node_supervisor::recheck_soon_delay);
}

TEST_F(supervisor_copying, failed_copy_is_tried_again_later_and_quarantine_lasts) {
    s_.record_found(forgot, restart_time);
    const auto step = s_.copying_failed("UNINIT node not admitted", restart_time + 1s);
    EXPECT_EQ(step.next, node_action::identify);
    EXPECT_EQ(step.delay, node_supervisor::recheck_soon_delay);
    EXPECT_EQ(s_.state(), node_state::quarantined);
    EXPECT_NE(s_.detail().find("UNINIT"), std::string::npos);
    EXPECT_EQ(s_.identified(facts_, restart_time + 1s).next, node_action::identify);
    EXPECT_NE(s_.detail().find("UNINIT"), std::string::npos) << "also after the next identification";
    EXPECT_EQ(s_.identified(facts_, restart_time + 1s + node_supervisor::copy_again_delay).next,
              node_action::copy_leases);
    s_.too_few_to_copy_from(restart_time + 5s);
    EXPECT_EQ(s_.quarantine_left(restart_time + 5s), 55s) << "from when the life was first seen";
    EXPECT_EQ(s_.identified(facts_, restart_time + 60s).next, node_action::draw_epoch);
    EXPECT_EQ(s_.copy_mark(), "");
}

TEST_F(supervisor_copying, copy_without_enough_voters_is_tried_at_the_next_check) {
    s_.record_found(forgot, restart_time);
    EXPECT_EQ(s_.too_few_to_copy_from(restart_time + 1s).delay, node_supervisor::recheck_soon_delay);
    EXPECT_NE(s_.detail().find("too few other nodes vote"), std::string::npos);
    EXPECT_EQ(s_.identified(facts_, restart_time + 1'100ms).next, node_action::copy_leases);
}

TEST_F(supervisor_copying, copy_of_a_node_that_changed_is_tried_at_the_next_check) {
    s_.record_found(forgot, restart_time);
    const std::string detail = s_.detail();
    EXPECT_EQ(s_.copying_failed({}, restart_time + 1s).delay, node_supervisor::recheck_soon_delay);
    EXPECT_EQ(s_.detail(), detail) << "nothing failed";
    EXPECT_EQ(s_.identified(facts_, restart_time + 1'100ms).next, node_action::copy_leases);
}

TEST_F(supervisor_copying, reason_of_a_failed_copy_is_named_once) {
    s_.record_found(forgot, restart_time);
    s_.copying_failed("UNINIT", restart_time + 1s);
    s_.identified(facts_, restart_time + 1'100ms);
    s_.copying_failed("UNINIT", restart_time + 4s);
    EXPECT_EQ(s_.detail().find("UNINIT"), s_.detail().rfind("UNINIT"));
}

TEST_F(supervisor_copying, readmit_that_answers_gone_leads_to_another_copy) {
    s_.record_found(forgot, restart_time);
    s_.leases_copied("run-a 0 0 0 digits", restart_time + 1s);
    s_.epoch_drawn(epoch{10});
    EXPECT_EQ(s_.readmit_answered(false).next, node_action::identify);
    facts_.marks.text = "0 0 1";  // CONFIG SET: the same life, but the mark on the node names the old settings
    EXPECT_EQ(s_.identified(facts_, restart_time + 2s).next, node_action::copy_leases);
    EXPECT_EQ(s_.leases_copied("run-a 0 0 1 digits", restart_time + 3s).next, node_action::readmit);
    EXPECT_EQ(s_.copy_mark(), "run-a 0 0 1 digits");
}

TEST_F(supervisor_copying, copies_belong_to_one_life) {
    s_.record_found(forgot, restart_time);
    s_.leases_copied("run-a 0 0 0 digits", restart_time + 1s);
    s_.disconnected("");
    s_.connected();
    for (const auto change : {+[](node_facts& f) { f.run_id = "run-b"; }, +[](node_facts& f) { f.claim = "claim-2"; },
                              +[](node_facts& f) { f.marks.lost = "1 0"; }}) {
        node_facts later = facts_;
        change(later);
        EXPECT_EQ(s_.identified(later, restart_time + 2s).next, node_action::find_record);
        EXPECT_EQ(s_.copy_mark(), "");
        EXPECT_EQ(s_.record_found(forgot, restart_time + 2s).next, node_action::copy_leases);
    }
}

TEST_F(supervisor_copying, connection_lost_after_the_copy_needs_no_second_copy) {
    s_.record_found(forgot, restart_time);
    s_.leases_copied("run-a 0 0 0 digits", restart_time + 1s);
    s_.disconnected("");
    s_.connected();
    EXPECT_EQ(s_.identified(facts_, restart_time + 2s).next, node_action::draw_epoch)
        << "the mark on the node still proves the copy";
    EXPECT_EQ(s_.copy_mark(), "run-a 0 0 0 digits");
}

}  // namespace
}  // namespace lockcore
