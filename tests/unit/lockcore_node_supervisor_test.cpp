// Who may vote: PROTOCOL.md R8–R10.
#include <proto/node_supervisor.hpp>

#include <gtest/gtest.h>

namespace lockcore {
namespace {

using action = node_supervisor::action;
using namespace std::chrono_literals;

constexpr monotonic_time t0{1h};

node_facts good_node() {
    node_facts f;
    f.run_id = "run-a";
    f.role = "master";
    f.maxmemory_policy = "noeviction";
    f.claim = "claim-1";
    return f;
}

TEST(node_supervisor, identifies_every_new_connection_before_it_may_vote) {
    node_supervisor s(60s);
    EXPECT_EQ(s.connected().next, action::identify);
    EXPECT_EQ(s.state(), node_state::identifying);
}

TEST(node_supervisor, lets_a_node_vote_that_is_admitted_under_its_live_run_id) {
    node_supervisor s(60s);
    s.connected();
    node_facts f = good_node();
    f.admitted_run_id = "run-a";
    f.admitted_epoch = epoch{3};
    EXPECT_EQ(s.identified(f, t0).next, action::vote);
    EXPECT_EQ(s.state(), node_state::voting);
    EXPECT_EQ(s.admitted_epoch(), epoch{3});
}

TEST(node_supervisor, draws_an_epoch_only_after_it_has_seen_the_run_id) {
    node_supervisor s(60s);
    s.connected();
    EXPECT_EQ(s.identified(good_node(), t0).next, action::draw_epoch);
    EXPECT_EQ(s.epoch_drawn({epoch{4}, true}, t0).next, action::readmit)
        << "a node never admitted before has forgotten nothing";
    EXPECT_EQ(s.drawn(), epoch{4});
    EXPECT_EQ(s.readmit_answered(true).next, action::identify) << "only the node's own record lets it vote";
}

TEST(node_supervisor, keeps_its_epoch_and_waits_when_the_node_refuses_to_be_admitted) {
    node_supervisor s(60s);
    s.connected();
    s.identified(good_node(), t0);
    s.epoch_drawn({epoch{4}, true}, t0);
    const auto step = s.readmit_refused("NOPERM this user has no permissions to run the 'eval' command");
    EXPECT_EQ(step.next, action::identify);
    EXPECT_GE(step.delay, 100ms);
    EXPECT_EQ(s.state(), node_state::misconfigured);
    EXPECT_NE(s.detail().find("NOPERM"), std::string::npos);
    EXPECT_EQ(s.identified(good_node(), t0 + 1s).next, action::readmit) << "no second epoch for one life";
}

TEST(node_supervisor, draws_again_when_another_process_lives_there_by_now) {
    node_supervisor s(60s);
    s.connected();
    s.identified(good_node(), t0);
    s.epoch_drawn({epoch{4}, true}, t0);
    s.readmit_answered(false);
    node_facts f = good_node();
    f.run_id = "run-b";
    EXPECT_EQ(s.identified(f, t0).next, action::draw_epoch);
}

TEST(node_supervisor, draws_again_when_the_data_were_wiped_between_look_and_draw) {
    node_supervisor s(60s);
    s.connected();
    s.identified(good_node(), t0);
    s.epoch_drawn({epoch{4}, false}, t0);
    node_facts f = good_node();
    f.claim = "claim-2";
    EXPECT_EQ(s.identified(f, t0 + 1s).next, action::draw_epoch);
}

TEST(node_supervisor, quarantines_a_restarted_node_until_all_older_leases_have_run_out) {
    node_supervisor s(60s);
    s.connected();
    node_facts f = good_node();
    f.admitted_run_id = "run-before";
    s.identified(f, t0);
    const auto step = s.epoch_drawn({epoch{9}, false}, t0);
    EXPECT_EQ(step.next, action::identify);
    EXPECT_EQ(s.state(), node_state::quarantined);
    EXPECT_EQ(s.quarantine_left(t0), 60s) << "from when it was first seen, whatever it says of its uptime";
    EXPECT_EQ(s.identified(f, t0 + 59s).next, action::identify);
    s.disconnected("");
    s.connected();
    EXPECT_EQ(s.identified(f, t0 + 60s).next, action::readmit)
        << "a connection that broke meanwhile starts nothing anew";
}

TEST(node_supervisor, lets_a_restarted_node_back_at_once_when_it_wrote_every_change_through_before) {
    node_supervisor s(60s);
    s.connected();
    node_facts f = good_node();
    f.admitted_run_id = "run-before";
    f.syncs_every_write = true;
    f.synced_so_far = true;
    s.identified(f, t0);
    EXPECT_EQ(s.epoch_drawn({epoch{9}, false}, t0).next, action::readmit);
}

TEST(node_supervisor, quarantines_a_restarted_node_that_writes_every_change_through_only_since_the_restart) {
    node_supervisor s(60s);
    s.connected();
    node_facts f = good_node();
    f.admitted_run_id = "run-before";
    f.syncs_every_write = true;
    s.identified(f, t0);
    s.epoch_drawn({epoch{9}, false}, t0);
    EXPECT_EQ(s.state(), node_state::quarantined) << "it may have lost the last second of what it wrote before";
}

TEST(node_supervisor, quarantines_a_wiped_node_from_when_it_was_first_seen_although_it_syncs) {
    node_supervisor s(60s);
    s.connected();
    node_facts f = good_node();
    f.syncs_every_write = true;
    f.synced_so_far = true;
    s.identified(f, t0);
    s.epoch_drawn({epoch{9}, false}, t0);
    EXPECT_EQ(s.state(), node_state::quarantined);
    EXPECT_EQ(s.identified(f, t0 + 59s).next, action::identify);
    EXPECT_EQ(s.identified(f, t0 + 60s).next, action::readmit);
}

TEST(node_supervisor, votes_out_of_quarantine_when_another_gateway_has_admitted_the_node) {
    node_supervisor s(60s);
    s.connected();
    s.identified(good_node(), t0);
    s.epoch_drawn({epoch{9}, false}, t0);
    node_facts f = good_node();
    f.admitted_run_id = f.run_id;
    EXPECT_EQ(s.identified(f, t0 + 1s).next, action::vote);
}

TEST(node_supervisor, looks_again_when_no_epoch_can_be_drawn) {
    node_supervisor s(60s);
    s.connected();
    s.identified(good_node(), t0);
    EXPECT_EQ(s.epoch_not_drawn("no database").next, action::identify);
    EXPECT_EQ(s.state(), node_state::identifying);
}

TEST(node_supervisor, stops_the_vote_of_a_node_that_forgot_its_admission) {
    node_supervisor s(60s);
    s.connected();
    node_facts f = good_node();
    f.admitted_run_id = f.run_id;
    s.identified(f, t0);
    EXPECT_EQ(s.found_not_admitted().next, action::identify);
    EXPECT_NE(s.state(), node_state::voting);
}

TEST(node_supervisor, says_what_to_change_when_a_node_can_never_vote) {
    const auto refused = [](auto change) {
        node_supervisor s(60s);
        s.connected();
        node_facts f = good_node();
        f.admitted_run_id = f.run_id;
        change(f);
        s.identified(f, t0);
        EXPECT_EQ(s.state(), node_state::misconfigured);
        return s.detail();
    };
    EXPECT_NE(refused([](node_facts& f) { f.role = "slave"; }).find("independent primary"), std::string::npos);
    EXPECT_NE(refused([](node_facts& f) { f.role = "sentinel"; }).find("independent primary"), std::string::npos);
    EXPECT_NE(refused([](node_facts& f) { f.cluster_mode = true; }).find("cluster-enabled no"), std::string::npos);
    EXPECT_NE(refused([](node_facts& f) { f.maxmemory_policy = "allkeys-lru"; }).find("maxmemory-policy noeviction"),
              std::string::npos);
    EXPECT_NE(refused([](node_facts& f) { f.same_as = "node-1"; }).find("node-1"), std::string::npos);
}

TEST(node_supervisor, waits_longer_between_connections_up_to_a_bound) {
    node_supervisor s(60s);
    milliseconds last{0};
    for (int i = 0; i < 10; ++i) {
        const auto step = s.disconnected("refused");
        EXPECT_EQ(step.next, action::connect);
        EXPECT_GE(step.delay, last);
        last = step.delay;
    }
    EXPECT_EQ(last, node_supervisor::reconnect_max);
}

TEST(node_supervisor, takes_the_vote_of_a_node_that_refuses_commands_until_it_is_looked_at_again) {
    node_supervisor s(60s);
    s.connected();
    node_facts f = good_node();
    f.admitted_run_id = f.run_id;
    s.identified(f, t0);
    const auto step = s.commands_refused("OOM command not allowed when used memory > 'maxmemory'");
    EXPECT_EQ(step.next, action::identify);
    EXPECT_EQ(step.delay, node_supervisor::look_again) << "never a tight loop";
    EXPECT_EQ(s.state(), node_state::misconfigured);
    EXPECT_NE(s.detail().find("OOM"), std::string::npos);
    EXPECT_EQ(s.identified(f, t0 + 1s).next, action::vote) << "it was admitted and has forgotten nothing";
}

TEST(node_supervisor, admits_a_node_under_no_older_epoch_when_its_record_is_gone_after_it_voted) {
    node_supervisor s(60s);
    s.connected();
    node_facts f = good_node();
    f.admitted_run_id = f.run_id;
    s.identified(f, t0);
    s.found_not_admitted();
    f.admitted_run_id.clear();
    f.claim = "claim-2";
    EXPECT_EQ(s.identified(f, t0).next, action::draw_epoch);
    s.epoch_drawn({epoch{8}, false}, t0);
    EXPECT_EQ(s.state(), node_state::quarantined) << "wiped while it ran";
}

TEST(why_no_node, finds_nothing_wrong_with_an_independent_primary) {
    EXPECT_EQ(why_no_node(good_node()), "");
}

TEST(why_no_node, names_the_first_thing_to_change) {
    const auto why = [](auto change) {
        node_facts f = good_node();
        change(f);
        return why_no_node(f);
    };
    EXPECT_TRUE(why([](node_facts& f) { f.role = "slave"; }).starts_with("is a slave:"));
    EXPECT_TRUE(why([](node_facts& f) { f.role = "sentinel"; }).starts_with("is a sentinel:"));
    EXPECT_TRUE(why([](node_facts& f) { f.role = ""; }).starts_with("is a :")) << "whatever does not say master";
    EXPECT_TRUE(why([](node_facts& f) { f.cluster_mode = true; }).find("cluster-enabled no") != std::string::npos);
    for (const char* policy : {"allkeys-lru", "volatile-ttl", ""}) {
        EXPECT_NE(why([&](node_facts& f) { f.maxmemory_policy = policy; }).find("set maxmemory-policy noeviction"),
                  std::string::npos);
    }
    EXPECT_EQ(why([](node_facts& f) { f.syncs_every_write = false; }), "") << "that costs a quarantine, no more";
}

// The life of a new node is: connected, identified, epoch drawn, admitted, identified, voting. The connection breaks
// behind each of these steps in turn; on the next one everything is asked anew, and it comes to vote all the same.
TEST(node_supervisor, comes_to_vote_when_the_connection_breaks_at_any_step) {
    for (int broken_after = 0; broken_after < 6; ++broken_after) {
        node_supervisor s(60s);
        node_facts f = good_node();
        std::uint64_t drawn = 0;
        int steps = 0;
        bool broken = false, looked = false;
        action next = action::connect;
        for (int i = 0; i < 30 && s.state() != node_state::voting; ++i) {
            switch (next) {
                case action::connect:
                    looked = false;
                    next = s.connected().next;
                    break;
                case action::identify:
                    looked = true;
                    next = s.identified(f, t0).next;
                    break;
                case action::draw_epoch:
                    EXPECT_TRUE(looked) << "the draw follows the sight of the run id";
                    next = s.epoch_drawn({epoch{++drawn}, true}, t0).next;
                    break;
                case action::readmit:
                    EXPECT_EQ(s.drawn(), epoch{drawn});
                    f.admitted_run_id = f.run_id;
                    f.admitted_epoch = s.drawn();
                    next = s.readmit_answered(true).next;
                    break;
                case action::vote:
                    break;
            }
            if (!broken && steps++ == broken_after) {
                broken = true;
                const auto lost = s.disconnected("reset by peer");
                EXPECT_EQ(lost.next, action::connect);
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
