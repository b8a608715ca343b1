// Of which nodes the leases are read for one that forgot: docs/protocol.md, FAST READMISSION 4.
#include "core_of_five_nodes.hpp"

namespace lockcore {
namespace {

using nodes = std::vector<std::size_t>;

/// The last of the five nodes forgets.
class sources : public core_of_five_nodes {
  protected:
    sources() { record_.known = true; }
    void forget() {
        facts_[4].admitted_run_id.clear();
        review();
        EXPECT_EQ(status(4).state, node_state::quarantined);
    }
    /// Returns the nodes that are read in the next `time`.
    nodes read_within(milliseconds time) {
        read_.clear();
        for (milliseconds passed{0}; passed < time; passed += 100ms)
            pass(100ms);
        return read_;
    }
};

TEST_F(sources, all_other_voting_nodes_are_read) {
    forget();
    EXPECT_EQ(read_within(1s), (nodes{0, 1, 2, 3}));
    EXPECT_EQ(status(4).state, node_state::voting);
}

TEST_F(sources, after_a_failed_try_three_others_are_read_each_time) {
    unreadable_.set(1);
    forget();
    EXPECT_EQ(read_within(1s), (nodes{0, 1, 2, 3}));
    EXPECT_EQ(read_within(2'700ms), (nodes{1, 2, 3}));
    EXPECT_EQ(read_within(2'700ms), (nodes{2, 3, 0}));
    EXPECT_EQ(status(4).state, node_state::voting);
    forget();
    EXPECT_EQ(read_within(1s), (nodes{0, 1, 2, 3})) << "the last try did not fail";
}

TEST_F(sources, failed_tries_are_forgotten_with_the_connection) {
    unreadable_.set(1);
    forget();
    EXPECT_EQ(read_within(1s), (nodes{0, 1, 2, 3}));
    unreadable_.reset();
    step(input::disconnected{node_index{4}, connections_[4], "it was restarted"});
    EXPECT_EQ(read_within(4s), (nodes{0, 1, 2, 3}));
    EXPECT_EQ(status(4).state, node_state::voting);
}

TEST_F(sources, two_other_voting_nodes_are_too_few) {
    for (const std::size_t n : {2U, 3U})
        facts_[n].admitted_run_id.clear();
    forget();
    read_within(1s);  // the core learns one after the other that the three are not admitted
    EXPECT_EQ(read_within(4s), nodes{});
    EXPECT_EQ(status(4).state, node_state::quarantined);
}

}  // namespace
}  // namespace lockcore
