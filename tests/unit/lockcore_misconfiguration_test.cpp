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

}  // namespace
}  // namespace lockcore
