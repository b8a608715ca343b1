#pragma once

#include "paper/played_nodes.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace fencegate::testing {

/// Real nodes, empty and admitted with epoch 0 before each test, so that counters are the small numbers of the paper.
class paper_nodes : public ::testing::Test {
  protected:
    static constexpr std::size_t count = 3;

    static void SetUpTestSuite() { servers_ = std::make_unique<redis_nodes>(count); }
    static void TearDownTestSuite() { servers_.reset(); }
    void SetUp() override {
        for (const auto& address : servers_->config().nodes) {
            nodes.emplace_back(address.port);
            nodes.back().connect();
            nodes.back().ask({"FLUSHALL"});
            ASSERT_EQ(nodes.back().admit(0), "OK");
        }
    }
    /// The process ends and another one starts, empty.
    void restart(std::size_t node) {
        servers_->kill(node);
        servers_->start(node);
        nodes[node].connect();
    }
    /// What of its data a node that comes back has read from its disk.
    struct remembered {
        std::string admitted_run, base, marks, resource, lease, counter;
    };
    remembered remember(std::size_t node, const std::string& resource) {
        played_node& n = nodes[node];
        return {n.ask({"HGET", "fg:node", "run"}),
                n.ask({"HGET", "fg:node", "base"}),
                n.ask({"HGET", "fg:node", "marks"}),
                resource,
                n.lease(resource),
                n.counter(resource)};
    }
    /// As remembered; restores what it says, and all else is forgotten.
    void restart_from(std::size_t node, const remembered& old) {
        restart(node);
        played_node& n = nodes[node];
        n.ask({"HSET", "fg:node", "run", old.admitted_run, "base", old.base, "marks", old.marks});
        if (!old.lease.empty()) n.ask({"SET", "fg:lease:" + old.resource, old.lease, "PX", "30000"});
        if (!old.counter.empty()) n.set_counter(old.resource, std::stoull(old.counter));
    }

    std::vector<played_node> nodes;
    const std::string r = "inventory/sku-1";

  private:
    static inline std::unique_ptr<redis_nodes> servers_;
};

/// The suite of the rules: most need one node.
class rules : public paper_nodes {
  protected:
    played_node& n0() { return nodes[0]; }
    /// A name that counts in the same bucket.
    static std::string shares_the_counter_of(const std::string& name) {
        const std::uint32_t bucket = lockcore::resource_name::parse(name)->bucket();
        for (unsigned i = 0;; ++i) {
            const std::string other = "other/" + std::to_string(i);
            if (lockcore::resource_name::parse(other)->bucket() == bucket) return other;
        }
    }
};

}  // namespace fencegate::testing
