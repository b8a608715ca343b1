// Which servers can be nodes.
#include <proto/node_supervisor.hpp>

#include <gtest/gtest.h>

#include <string>

namespace lockcore {
namespace {

node_facts independent_primary() {
    node_facts f;
    f.run_id = "run-a";
    f.role = "master";
    f.maxmemory_policy = "noeviction";
    return f;
}

TEST(why_no_node, independent_primary_has_no_fault) {
    EXPECT_EQ(find_misconfiguration(independent_primary()), "");
}

TEST(why_no_node, names_the_first_thing_to_change) {
    const auto why = [](auto change) {
        node_facts f = independent_primary();
        change(f);
        return find_misconfiguration(f);
    };
    EXPECT_TRUE(why([](node_facts& f) { f.role = "slave"; }).starts_with("is a slave:"));
    EXPECT_TRUE(why([](node_facts& f) { f.role = "sentinel"; }).starts_with("is a sentinel:"));
    EXPECT_TRUE(why([](node_facts& f) { f.role = ""; }).starts_with("is a :")) << "whatever does not say master";
    EXPECT_TRUE(why([](node_facts& f) { f.cluster_mode = true; }).find("cluster-enabled no") != std::string::npos);
    for (const char* policy : {"allkeys-lru", "volatile-ttl", ""}) {
        EXPECT_NE(why([&](node_facts& f) { f.maxmemory_policy = policy; }).find("set maxmemory-policy noeviction"),
                  std::string::npos);
    }
    EXPECT_NE(why([](node_facts& f) { f.outdated_version = "6.2.14"; }).find("nodes need 7.0"), std::string::npos);
    EXPECT_EQ(why([](node_facts& f) { f.syncs_every_write = false; }), "") << "that costs a quarantine, no more";
}

TEST(why_no_node, of_another_cell_names_both) {
    const std::string bits(32, 'a');
    EXPECT_EQ(find_other_cell("", 2), "") << "nobody has claimed its data";
    EXPECT_EQ(find_other_cell("2~" + bits, 2), "");
    EXPECT_EQ(find_other_cell(bits, 0), "");
    EXPECT_EQ(find_other_cell(bits, 2), "belongs to cell 0, this gateway is of cell 2: correct redis.nodes or cell");
    EXPECT_TRUE(find_other_cell("1~" + bits, 0).starts_with("belongs to cell 1, this gateway is of cell 0:"));
    EXPECT_TRUE(find_other_cell("x~" + bits, 0).starts_with("belongs to another cell, this gateway is of cell 0:"));
}

// The register of this cell learns nothing about it, and its admission stays.
TEST(why_no_node, of_another_cell_is_left_as_it_is) {
    node_facts f = independent_primary();
    f.admitted_run_id = f.run_id;
    f.maxmemory_policy = "allkeys-lru";
    f.other_cell = "belongs to cell 1";
    f.admitted_epoch = epoch{7};
    node_supervisor supervisor(milliseconds{1'000});
    EXPECT_EQ(supervisor.identified(f, {}).next, node_supervisor::action::identify);
    EXPECT_EQ(supervisor.state(), node_state::misconfigured);
    EXPECT_EQ(supervisor.detail(), "belongs to cell 1");
    EXPECT_EQ(supervisor.facts().admitted_epoch, epoch{});
}

TEST(why_no_node, refused_credentials_are_tried_again_on_a_new_connection) {
    using node_action = node_supervisor::action;
    node_supervisor supervisor(milliseconds{60'000});
    for (int times = 0; times < 3; ++times) {
        const auto step = supervisor.credentials_refused("refuses the credentials: WRONGPASS");
        EXPECT_EQ(step.next, node_action::connect) << "the password may be another one by then";
        EXPECT_EQ(step.delay, node_supervisor::recheck_delay);
        EXPECT_EQ(supervisor.state(), node_state::misconfigured);
        EXPECT_EQ(supervisor.detail(), "refuses the credentials: WRONGPASS");
    }
    supervisor.connected();
    node_facts f = independent_primary();
    f.admitted_run_id = f.run_id;
    f.kept_unsynced = true;
    EXPECT_EQ(supervisor.identified(f, {}).next, node_action::vote) << "it was admitted and has forgotten nothing";
}

}  // namespace
}  // namespace lockcore
