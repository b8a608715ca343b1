#pragma once

#include "paper/node_client.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace fencegate::testing {

/// Three real nodes, emptied and admitted with epoch 0 before each test, so that tokens are the small numbers that
/// docs/protocol.md uses.
class admitted_nodes : public ::testing::Test {
  protected:
    static constexpr std::size_t count = 3;

    static void SetUpTestSuite() { servers_ = std::make_unique<redis_nodes>(count); }
    static void TearDownTestSuite() { servers_.reset(); }
    void SetUp() override {
        for (const auto& address : servers_->config().nodes) {
            nodes.emplace_back(address.port);
            nodes.back().connect();
            nodes.back().command({"FLUSHALL"});
            ASSERT_EQ(nodes.back().admit(0), "OK");
        }
    }
    /// Replaces the process of a node by a new one without data.
    void restart(std::size_t node) {
        servers_->kill(node);
        servers_->start(node);
        nodes[node].connect();
    }
    /// The data that a restarted node reads from its disk.
    struct saved_state {
        std::string admitted_run, base, marks, resource, lease, counter;
    };
    saved_state save_state(std::size_t node, const std::string& resource) {
        node_client& n = nodes[node];
        return {n.command({"HGET", "fg:node", "run"}),
                n.command({"HGET", "fg:node", "base"}),
                n.command({"HGET", "fg:node", "marks"}),
                resource,
                n.lease(resource),
                n.counter(resource)};
    }
    /// Replaces the process of a node by one that has the saved data only.
    void restart_with_state(std::size_t node, const saved_state& old) {
        restart(node);
        node_client& n = nodes[node];
        n.command({"HSET", "fg:node", "run", old.admitted_run, "base", old.base, "marks", old.marks});
        if (!old.lease.empty()) n.command({"SET", "fg:lease:" + old.resource, old.lease, "PX", "30000"});
        if (!old.counter.empty()) n.set_counter(old.resource, std::stoull(old.counter));
    }

    std::vector<node_client> nodes;
    const std::string r = "inventory/sku-1";  ///< The resource of most tests.

  private:
    static inline std::unique_ptr<redis_nodes> servers_;
};

/// The suite of the rules; most tests use one node.
class rules : public admitted_nodes {
  protected:
    node_client& n0() { return nodes[0]; }
    /// Returns another resource name of the same bucket.
    static std::string name_in_same_bucket(const std::string& name) {
        const std::uint32_t bucket = lockcore::resource_name::parse(name)->bucket();
        for (unsigned i = 0;; ++i) {
            const std::string candidate = "other/" + std::to_string(i);
            if (lockcore::resource_name::parse(candidate)->bucket() == bucket) return candidate;
        }
    }
};

}  // namespace fencegate::testing
