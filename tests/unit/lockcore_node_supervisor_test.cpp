// Which nodes may vote: docs/protocol.md R8–R10.
#include <proto/node_supervisor.hpp>

#include <gtest/gtest.h>

namespace lockcore {
namespace {

using node_action = node_supervisor::action;
using namespace std::chrono_literals;

constexpr monotonic_time t0{1h};

node_facts good_node() {
    node_facts f;
    f.run_id = "run-a";
    f.role = "master";
    f.maxmemory_policy = "noeviction";
    f.claim = "claim-1";
    f.kept_unsynced = true;
    return f;
}

/// The register's records of a node without an epoch, and of one with the epoch `drawn`.
const node_record unknown;
node_record drew(std::uint64_t drawn, bool synced = false) {
    return {true, epoch{drawn}, "an older life", synced};
}

TEST(node_supervisor, new_connection_is_identified_before_it_may_vote) {
    node_supervisor s(60s);
    EXPECT_EQ(s.connected().next, node_action::identify);
    EXPECT_EQ(s.state(), node_state::identifying);
}

TEST(node_supervisor, node_admitted_under_its_live_run_id_votes) {
    node_supervisor s(60s);
    s.connected();
    node_facts f = good_node();
    f.admitted_run_id = "run-a";
    f.admitted_epoch = epoch{3};
    EXPECT_EQ(s.identified(f, t0).next, node_action::vote);
    EXPECT_EQ(s.state(), node_state::voting);
    EXPECT_EQ(s.admitted_epoch(), epoch{3});
}

TEST(node_supervisor, draws_an_epoch_only_after_it_has_read_the_run_id) {
    node_supervisor s(60s);
    s.connected();
    EXPECT_EQ(s.identified(good_node(), t0).next, node_action::find_record);
    EXPECT_EQ(s.record_found(unknown, t0).next, node_action::draw_epoch)
        << "a node never admitted before has forgotten nothing";
    EXPECT_EQ(s.epoch_drawn(epoch{4}).next, node_action::readmit);
    EXPECT_EQ(s.drawn(), epoch{4});
    EXPECT_EQ(s.readmit_answered(true).next, node_action::identify) << "only the node's own record lets it vote";
}

TEST(node_supervisor, refused_admission_keeps_the_epoch_and_waits) {
    node_supervisor s(60s);
    s.connected();
    s.identified(good_node(), t0);
    s.record_found(unknown, t0);
    s.epoch_drawn(epoch{4});
    const auto step = s.readmit_refused("NOPERM this user has no permissions to run the 'eval' command");
    EXPECT_EQ(step.next, node_action::identify);
    EXPECT_GE(step.delay, 100ms);
    EXPECT_EQ(s.state(), node_state::misconfigured);
    EXPECT_NE(s.detail().find("NOPERM"), std::string::npos);
    EXPECT_EQ(s.identified(good_node(), t0 + 1s).next, node_action::readmit) << "no second epoch for one life";
}

TEST(node_supervisor, another_process_at_the_address_draws_again) {
    node_supervisor s(60s);
    s.connected();
    s.identified(good_node(), t0);
    s.record_found(unknown, t0);
    s.epoch_drawn(epoch{4});
    EXPECT_GE(s.readmit_answered(false).delay, 100ms) << "never a tight loop";
    node_facts f = good_node();
    f.run_id = "run-b";
    EXPECT_EQ(s.identified(f, t0).next, node_action::find_record);
    EXPECT_EQ(s.record_found(drew(4), t0 + 60s).next, node_action::draw_epoch);
}

TEST(node_supervisor, data_changed_before_the_draw_draws_again) {
    const auto after = [](auto change) {
        node_supervisor s(60s);
        s.connected();
        s.identified(good_node(), t0);
        s.record_found(unknown, t0);
        s.epoch_drawn(epoch{4});
        node_facts f = good_node();
        change(f);
        return s.identified(f, t0 + 1s).next;
    };
    EXPECT_EQ(after([](node_facts& f) { f.claim = "claim-2"; }), node_action::find_record);
    EXPECT_EQ(after([](node_facts& f) { f.marks.lost = "1 0"; }), node_action::find_record);
    EXPECT_EQ(after([](node_facts& f) { f.marks.evicted = "1"; }), node_action::find_record);
    EXPECT_EQ(after([](node_facts& f) { f.marks.text = "0 0 1"; }), node_action::readmit) << "that loses nothing";
}

TEST(node_supervisor, sync_that_ends_after_the_draw_is_recorded) {
    node_supervisor s(60s);
    s.connected();
    node_facts f = good_node();
    f.syncs_every_write = true;
    s.identified(f, t0);
    s.record_found(unknown, t0);
    s.epoch_drawn(epoch{4});
    f.syncs_every_write = false;
    f.marks.text = "0 0 1";
    EXPECT_EQ(s.readmit_answered(false).next, node_action::identify) << "the node replied GONE: its marks had changed";
    EXPECT_EQ(s.identified(f, t0).next, node_action::draw_epoch) << "the register must not say that this life syncs";
    EXPECT_FALSE(s.facts().syncs_every_write) << "what the register records";
    EXPECT_EQ(s.epoch_drawn(epoch{4}).next, node_action::readmit);
    EXPECT_EQ(s.identified(f, t0).next, node_action::readmit) << "it has recorded that";
}

TEST(node_supervisor, restarted_node_is_quarantined_until_older_leases_expire) {
    node_supervisor s(60s);
    s.connected();
    node_facts f = good_node();
    f.admitted_run_id = "run-before";
    s.identified(f, t0);
    const auto step = s.record_found(drew(9), t0);
    EXPECT_EQ(step.next, node_action::identify);
    EXPECT_EQ(s.state(), node_state::quarantined);
    EXPECT_EQ(s.quarantine_left(t0), 60s) << "from when it was first seen, whatever it says of its uptime";
    EXPECT_EQ(s.identified(f, t0 + 59s).next, node_action::identify);
    s.disconnected("");
    s.connected();
    EXPECT_EQ(s.identified(f, t0 + 60s).next, node_action::draw_epoch)
        << "a connection that broke meanwhile starts nothing anew, and the register is asked when it may vote";
}

node_facts restarted_node() {
    node_facts f = good_node();
    f.admitted_run_id = "run-before";
    f.admitted_epoch = epoch{9};
    f.syncs_every_write = true;
    return f;
}

TEST(node_supervisor, restarted_node_that_always_synced_returns_at_once) {
    node_supervisor s(60s);
    s.connected();
    s.identified(restarted_node(), t0);
    EXPECT_EQ(s.record_found(drew(9, true), t0).next, node_action::draw_epoch);
}

TEST(node_supervisor, doubtful_data_are_recorded_before_the_quarantine) {
    node_supervisor s(60s);
    s.connected();
    node_facts f = restarted_node();
    f.marks.text = "0 0 1";
    s.identified(f, t0);
    EXPECT_EQ(s.record_found(drew(9, true), t0).next, node_action::note_unsynced) << "a second restart would hide it";
    EXPECT_EQ(s.unsynced_noted().next, node_action::identify);
    EXPECT_EQ(s.identified(f, t0 + 1s).next, node_action::identify);
    EXPECT_EQ(s.state(), node_state::quarantined);
    EXPECT_EQ(s.quarantine_left(t0 + 1s), 59s);
}

TEST(node_supervisor, node_that_could_not_vote_is_recorded) {
    for (const auto change :
         {+[](node_facts& f) { f.maxmemory_policy = "volatile-lru"; }, +[](node_facts& f) { f.role = "slave"; }}) {
        node_supervisor s(60s);
        s.connected();
        node_facts f = restarted_node();
        change(f);
        EXPECT_EQ(s.identified(f, t0).next, node_action::note_unsynced) << "its leases may be evicted or replaced";
        EXPECT_EQ(s.state(), node_state::misconfigured);
        s.register_failed("out of reach");
        EXPECT_EQ(s.state(), node_state::misconfigured);
        EXPECT_EQ(s.identified(f, t0).next, node_action::note_unsynced);
        EXPECT_EQ(s.unsynced_noted().delay, node_supervisor::recheck_delay);
        EXPECT_EQ(s.identified(f, t0).next, node_action::identify) << "recorded once";
    }
}

TEST(node_supervisor, loss_not_recorded_yet_holds_for_the_next_life) {
    node_supervisor s(60s);
    s.connected();
    node_facts f = restarted_node();
    f.marks.text = "0 0 1";
    s.identified(f, t0);
    EXPECT_EQ(s.record_found(drew(9, true), t0).next, node_action::note_unsynced);
    s.register_failed("out of reach");
    f = restarted_node();
    f.run_id = "run-3";
    s.identified(f, t0);
    EXPECT_EQ(s.record_found(drew(9, true), t0).next, node_action::note_unsynced)
        << "nothing of this life shows the loss";
}

TEST(node_supervisor, life_that_has_drawn_needs_no_quarantine) {
    node_supervisor s(60s);
    s.connected();
    s.identified(restarted_node(), t0);
    node_record drawn_by_another = drew(10, true);
    drawn_by_another.life = s.life();
    EXPECT_EQ(s.record_found(drawn_by_another, t0).next, node_action::draw_epoch) << "another gateway has decided that";
}

TEST(node_supervisor, restarted_node_with_doubtful_data_is_quarantined) {
    const auto state = [](node_record record, auto change) {
        node_supervisor s(60s);
        s.connected();
        node_facts f = restarted_node();
        change(f);
        s.identified(f, t0);
        if (s.record_found(record, t0).next == node_action::note_unsynced) {
            s.unsynced_noted();
            s.identified(f, t0);
        }
        return s.state();
    };
    const auto as_is = [](node_facts&) {};
    EXPECT_EQ(state(drew(9, true), as_is), node_state::identifying);
    EXPECT_EQ(state(drew(9, false), as_is), node_state::quarantined) << "the register has seen it not syncing";
    EXPECT_EQ(state(drew(10, true), as_is), node_state::quarantined) << "the data of an older life";
    EXPECT_EQ(state(drew(9, true), [](node_facts& f) { f.syncs_every_write = false; }), node_state::quarantined);
    EXPECT_EQ(state(drew(9, true), [](node_facts& f) { f.admitted_run_id.clear(); }), node_state::quarantined)
        << "wiped";
    EXPECT_EQ(state(drew(9, true),
                    [](node_facts& f) {
                        f.marks = {"1 0 0", "1 0", "0"};
                    }),
              node_state::quarantined)
        << "and replaced since it runs";
    EXPECT_EQ(state(drew(9, true),
                    [](node_facts& f) {
                        f.marks = {"0 0 1", "0 0", "0"};
                    }),
              node_state::quarantined)
        << "loaded under other settings, perhaps from another file";
    EXPECT_EQ(state(drew(9, true), [](node_facts& f) { f.marks.evicted = "1"; }), node_state::quarantined);
}

TEST(node_supervisor, admission_by_another_gateway_ends_the_quarantine) {
    node_supervisor s(60s);
    s.connected();
    s.identified(good_node(), t0);
    s.record_found(drew(9), t0);
    node_facts f = good_node();
    f.admitted_run_id = f.run_id;
    EXPECT_EQ(s.identified(f, t0 + 1s).next, node_action::vote);
}

TEST(node_supervisor, unreachable_register_is_asked_again) {
    node_supervisor s(60s);
    s.connected();
    s.identified(good_node(), t0);
    const auto step = s.register_failed("no database");
    EXPECT_EQ(step.next, node_action::identify);
    EXPECT_GE(step.delay, 100ms);
    EXPECT_EQ(s.state(), node_state::identifying);
    EXPECT_EQ(s.identified(good_node(), t0 + 1s).next, node_action::find_record);
}

/// Returns the action after an admitted node was identified again.
node_action reviewed(node_facts f) {
    node_supervisor s(60s);
    s.connected();
    f.admitted_run_id = f.run_id;
    const node_action next = s.identified(f, t0).next;
    EXPECT_EQ(next == node_action::vote, s.state() == node_state::voting);
    return next;
}

TEST(node_supervisor, data_loss_without_restart_revokes_the_admission) {
    node_facts lost = good_node(), evicted = good_node(), reset = good_node(), evicts = good_node();
    lost.marks = {"2 0 0", "2 0", "0"};
    EXPECT_EQ(reviewed(lost), node_action::delete_admission);
    lost.admitted_marks = lost.marks;
    EXPECT_EQ(reviewed(lost), node_action::vote) << "that was before it was admitted";
    evicted.marks.evicted = "1";
    EXPECT_EQ(reviewed(evicted), node_action::delete_admission);
    reset.marks = {"0 38 0", "0 38", "0"};
    reset.admitted_marks = {"0 12 0", "0 12", "0"};
    EXPECT_EQ(reviewed(reset), node_action::delete_admission) << "CONFIG RESETSTAT hides what was counted";
    evicts.maxmemory_policy = "volatile-lru";
    EXPECT_EQ(reviewed(evicts), node_action::delete_admission);
}

TEST(node_supervisor, register_records_missing_sync_before_the_vote) {
    node_facts f = good_node();
    f.kept_unsynced = false;
    EXPECT_EQ(reviewed(f), node_action::note_unsynced);
    f.syncs_every_write = true;
    EXPECT_EQ(reviewed(f), node_action::vote);
    node_supervisor s(60s);
    f.admitted_run_id = f.run_id;
    f.syncs_every_write = false;
    s.identified(f, t0);
    EXPECT_EQ(s.unsynced_noted().next, node_action::readmit) << "so that the node says so to others";
}

TEST(node_supervisor, changed_settings_are_checked_before_the_next_vote) {
    node_facts f = good_node();
    f.marks.text = "0 0 1";
    EXPECT_EQ(reviewed(f), node_action::readmit);
}

TEST(node_supervisor, node_without_its_admission_stops_voting) {
    node_supervisor s(60s);
    s.connected();
    node_facts f = good_node();
    f.admitted_run_id = f.run_id;
    s.identified(f, t0);
    EXPECT_EQ(s.found_not_admitted().next, node_action::identify);
    EXPECT_NE(s.state(), node_state::voting);
}

TEST(node_supervisor, node_that_can_never_vote_names_what_to_change) {
    const auto refused = [](auto change) {
        node_supervisor s(60s);
        s.connected();
        node_facts f = good_node();
        f.admitted_run_id = f.run_id;
        change(f);
        s.identified(f, t0);
        EXPECT_EQ(s.state(), node_state::misconfigured);
        const std::string detail = s.detail();
        f = good_node();
        f.admitted_run_id = f.run_id;
        EXPECT_EQ(s.identified(f, t0).next, node_action::vote) << "once it is corrected";
        return detail;
    };
    EXPECT_NE(refused([](node_facts& f) { f.role = "slave"; }).find("independent primary"), std::string::npos);
    EXPECT_NE(refused([](node_facts& f) { f.role = "sentinel"; }).find("independent primary"), std::string::npos);
    EXPECT_NE(refused([](node_facts& f) { f.cluster_mode = true; }).find("cluster-enabled no"), std::string::npos);
    EXPECT_NE(refused([](node_facts& f) { f.maxmemory_policy = "allkeys-lru"; }).find("maxmemory-policy noeviction"),
              std::string::npos);
    EXPECT_NE(refused([](node_facts& f) { f.duplicate_of = "node-1"; }).find("node-1"), std::string::npos);
}

TEST(node_supervisor, waits_longer_between_connections_up_to_a_bound) {
    node_supervisor s(60s);
    milliseconds last{0};
    for (int i = 0; i < 10; ++i) {
        const auto step = s.disconnected("refused");
        EXPECT_EQ(step.next, node_action::connect);
        EXPECT_GE(step.delay, last);
        last = step.delay;
    }
    EXPECT_EQ(last, node_supervisor::reconnect_max);
}

TEST(node_supervisor, node_that_refuses_commands_stops_voting_until_checked) {
    node_supervisor s(60s);
    s.connected();
    node_facts f = good_node();
    f.admitted_run_id = f.run_id;
    s.identified(f, t0);
    const auto step = s.commands_refused("OOM command not allowed when used memory > 'maxmemory'");
    EXPECT_EQ(step.next, node_action::identify);
    EXPECT_EQ(step.delay, node_supervisor::recheck_delay) << "never a tight loop";
    EXPECT_EQ(s.state(), node_state::misconfigured);
    EXPECT_NE(s.detail().find("OOM"), std::string::npos);
    EXPECT_EQ(s.identified(f, t0 + 1s).next, node_action::vote) << "it was admitted and has forgotten nothing";
}

TEST(node_supervisor, node_that_is_loading_or_busy_is_not_misconfigured) {
    for (const char* error :
         {"LOADING Redis is loading the dataset in memory", "BUSY Redis is busy running a script"}) {
        node_supervisor s(60s);
        s.connected();
        EXPECT_EQ(s.commands_refused(error).next, node_action::identify);
        EXPECT_EQ(s.state(), node_state::identifying) << error;
    }
}

TEST(node_supervisor, node_wiped_after_it_voted_gets_a_new_epoch) {
    node_supervisor s(60s);
    s.connected();
    node_facts f = good_node();
    f.admitted_run_id = f.run_id;
    s.identified(f, t0);
    s.found_not_admitted();
    f.admitted_run_id.clear();
    f.claim = "claim-2";
    EXPECT_EQ(s.identified(f, t0).next, node_action::find_record);
    s.record_found(drew(8), t0);
    EXPECT_EQ(s.state(), node_state::quarantined) << "wiped while it ran";
    f.claim = "claim-3";
    s.identified(f, t0 + 59s);
    EXPECT_EQ(s.record_found(drew(8), t0 + 59s).delay, 100ms);
    EXPECT_EQ(s.quarantine_left(t0 + 59s), 60s) << "wiped once more: from now on";
    EXPECT_EQ(s.identified(f, t0 + 118'999ms).delay, 1ms);
    EXPECT_EQ(s.identified(f, t0 + 119s).next, node_action::draw_epoch);
}

// A new node passes these steps: connected, identified, record found, epoch drawn, admitted, identified, voting. The
// connection breaks after each step in turn; the next connection starts from the beginning, and the node still votes.
TEST(node_supervisor, connection_lost_at_any_step_still_leads_to_vote) {
    for (int broken_after = 0; broken_after < 7; ++broken_after) {
        node_supervisor s(60s);
        node_facts f = good_node();
        std::uint64_t drawn = 0;
        int steps = 0;
        bool broken = false, looked = false;
        node_action next = node_action::connect;
        for (int i = 0; i < 30 && s.state() != node_state::voting; ++i) {
            switch (next) {
                case node_action::connect:
                    looked = false;
                    next = s.connected().next;
                    break;
                case node_action::identify:
                    looked = true;
                    next = s.identified(f, t0).next;
                    break;
                case node_action::find_record:
                    EXPECT_TRUE(looked);
                    next = s.record_found(unknown, t0).next;
                    break;
                case node_action::draw_epoch:
                    EXPECT_TRUE(looked) << "the draw follows the sight of the run id";
                    next = s.epoch_drawn(epoch{++drawn}).next;
                    break;
                case node_action::readmit:
                    EXPECT_EQ(s.drawn(), epoch{drawn});
                    f.admitted_run_id = f.run_id;
                    f.admitted_epoch = s.drawn();
                    next = s.readmit_answered(true).next;
                    break;
                case node_action::note_unsynced:
                case node_action::copy_leases:
                case node_action::delete_admission:
                case node_action::vote:
                    break;
            }
            if (!broken && steps++ == broken_after) {
                broken = true;
                const auto lost = s.disconnected("reset by peer");
                EXPECT_EQ(lost.next, node_action::connect);
                EXPECT_GT(lost.delay, 0ms);
                EXPECT_EQ(s.state(), node_state::unreachable);
                next = lost.next;
            }
        }
        EXPECT_EQ(s.state(), node_state::voting) << "broken after step " << broken_after;
        EXPECT_EQ(drawn, 1U) << "one life of the node, one epoch";
    }
}

}  // namespace
}  // namespace lockcore
