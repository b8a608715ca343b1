// A node that may have forgotten leases while it ran: docs/protocol.md, FORGETTING IN ONE LIFE.
#include <proto/node_supervisor.hpp>

#include <gtest/gtest.h>

namespace lockcore {
namespace {

using node_action = node_supervisor::action;
using namespace std::chrono_literals;

constexpr monotonic_time first_contact{1h};

TEST(node_supervisor, node_that_forgot_while_it_ran_is_quarantined) {
    node_supervisor s(60s);
    s.connected();
    node_facts f;
    f.run_id = f.admitted_run_id = "run-a";
    f.role = "master";
    f.maxmemory_policy = "noeviction";
    f.claim = "claim-1";
    f.admitted_epoch = epoch{9};
    f.syncs_every_write = true;
    f.marks = {"2 0 0", "2 0", "0"};
    EXPECT_EQ(s.identified(f, first_contact).next, node_action::delete_admission);
    const auto refused = s.admission_deleted("NOPERM no permissions");
    EXPECT_EQ(refused.next, node_action::identify);
    EXPECT_EQ(refused.delay, node_supervisor::recheck_delay);
    EXPECT_EQ(s.state(), node_state::misconfigured);
    EXPECT_NE(s.detail().find("NOPERM"), std::string::npos);

    EXPECT_EQ(s.identified(f, first_contact + 1s).next, node_action::delete_admission);
    EXPECT_EQ(s.admission_deleted("").delay, 0ms);
    f.admitted_run_id.clear();
    f.claim = "claim-2";
    EXPECT_EQ(s.identified(f, first_contact + 2s).next, node_action::find_record)
        << "another life, although the process is the same";
    EXPECT_EQ(s.record_found({true, epoch{9}, "an older life", true}, first_contact + 2s).next,
              node_action::note_unsynced);
    s.unsynced_noted();
    s.identified(f, first_contact + 2s);
    EXPECT_EQ(s.state(), node_state::quarantined);
    EXPECT_EQ(s.identified(f, first_contact + 62s).next, node_action::draw_epoch);

    f.admitted_run_id = f.run_id;
    f.maxmemory_policy = "allkeys-lru";
    EXPECT_EQ(s.identified(f, first_contact + 63s).next, node_action::delete_admission);
    EXPECT_EQ(s.admission_deleted("").delay, node_supervisor::recheck_delay) << "never a tight loop";
}

}  // namespace
}  // namespace lockcore
