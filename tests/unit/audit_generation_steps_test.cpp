#include <gateway/audit/generation_steps.hpp>

#include <gtest/gtest.h>

#include <string>

namespace fencegate::audit {
namespace {

namespace step = generation_step;
using lockcore::epoch;
using lockcore::floor_announcement;

/// Records what the steps ask for at once, as text.
struct recorded final : generation_steps::ports {
    std::vector<lockcore::node_status> nodes() const override { return statuses; }
    void raise_hints(epoch floor) override { log += "hints " + number(floor); }
    void renew_connections() override { log += "renew "; }
    void require_floor(epoch floor) override { required = floor; }
    void report_lost(bool record) override { log += record ? "lost recorded " : "lost "; }
    void report(notice what) override { log += "notice " + std::to_string(static_cast<int>(what)) + " "; }
    static std::string number(epoch e) { return std::to_string(lockcore::value_of(e)) + " "; }

    std::vector<lockcore::node_status> statuses = std::vector<lockcore::node_status>(3);
    std::string log;
    epoch required{};
};

struct generation_steps_test : testing::Test {
    recorded ports;
    generation_steps steps{ports, 3};

    static generation_steps::state current(std::uint64_t floor) { return {true, epoch{floor}}; }
    /// Brings the steps to where the floor is to be announced.
    void begin_change() {
        ASSERT_TRUE(std::holds_alternative<step::begin_change>(steps.on_state(generation_steps::state{})));
        ASSERT_TRUE(
            std::holds_alternative<step::announce>(steps.on_begun(lockcore::storage_floor{epoch{1'025}, "id"})));
    }
    static floor_announcement announced(bool by_majority, bool by_all, std::uint64_t too_close = 0) {
        return {by_majority, by_all, epoch{too_close}};
    }
};

TEST_F(generation_steps_test, change_goes_through_every_step_in_order) {
    ports.statuses[1].observed_epoch = epoch{7};
    const auto begun = steps.on_state(generation_steps::state{});
    ASSERT_TRUE(std::holds_alternative<step::begin_change>(begun));
    EXPECT_EQ(std::get<step::begin_change>(begun).seen, epoch{7});
    EXPECT_FALSE(steps.is_current());
    const auto announce = steps.on_begun(lockcore::storage_floor{epoch{1'031}, "id"});
    ASSERT_TRUE(std::holds_alternative<step::announce>(announce));
    EXPECT_EQ(std::get<step::announce>(announce).floor.value, epoch{1'031});
    EXPECT_TRUE(std::holds_alternative<step::find_lost_writes>(steps.on_announced(announced(true, false))));
    const auto finish = steps.on_lost_writes(true);
    ASSERT_TRUE(std::holds_alternative<step::finish_change>(finish));
    EXPECT_EQ(std::get<step::finish_change>(finish).change_id, "id");
    EXPECT_TRUE(std::holds_alternative<step::wait>(steps.on_finished(false)));
    EXPECT_TRUE(std::holds_alternative<step::find_state>(steps.on_finished(true)))
        << "new tokens are too low until then";
    EXPECT_FALSE(steps.is_current()) << "only PostgreSQL says that the generation is current";
    EXPECT_EQ(ports.log, "notice 0 renew notice 2 lost ");
}

TEST_F(generation_steps_test, change_without_admitted_nodes_needs_two_rounds) {
    begin_change();
    EXPECT_TRUE(std::holds_alternative<step::announce>(steps.on_announced(announced(false, true))));
    EXPECT_TRUE(std::holds_alternative<step::find_lost_writes>(steps.on_announced(announced(false, true))));
    // A second round that not all nodes answer is none, and the next change needs two rounds again.
    begin_change();
    EXPECT_TRUE(std::holds_alternative<step::announce>(steps.on_announced(announced(false, true))));
    EXPECT_TRUE(std::holds_alternative<step::wait>(steps.on_announced(announced(false, false))));
    begin_change();
    EXPECT_TRUE(std::holds_alternative<step::announce>(steps.on_announced(announced(false, true))));
}

TEST_F(generation_steps_test, change_that_too_few_nodes_have_waits) {
    begin_change();
    EXPECT_TRUE(std::holds_alternative<step::wait>(steps.on_announced(announced(false, false))));
    begin_change();
    EXPECT_TRUE(std::holds_alternative<step::wait>(steps.on_announced(std::nullopt)));
    EXPECT_TRUE(std::holds_alternative<step::wait>(steps.on_begun(std::nullopt)));
    EXPECT_EQ(ports.log, "notice 0 renew notice 1 ");
}

TEST_F(generation_steps_test, changed_floor_on_a_node_looks_at_postgresql_first) {
    begin_change();
    floor_announcement changed = announced(false, false);
    changed.changed = true;
    const auto next = steps.on_announced(changed);
    ASSERT_TRUE(std::holds_alternative<step::wait>(next));
    EXPECT_TRUE(std::get<step::wait>(next).briefly);
    EXPECT_EQ(ports.log, "notice 0 renew ") << "the nodes vote";
    begin_change();
    changed.by_majority = true;
    EXPECT_TRUE(std::holds_alternative<step::find_lost_writes>(steps.on_announced(changed)));
}

TEST_F(generation_steps_test, floor_too_close_begins_again_above_it) {
    begin_change();
    const auto again = steps.on_announced(announced(true, true, 1'025));
    ASSERT_TRUE(std::holds_alternative<step::begin_change>(again));
    EXPECT_EQ(std::get<step::begin_change>(again).seen, epoch{1'025 + lockcore::floor_distance});
}

TEST_F(generation_steps_test, lost_writes_are_looked_for_as_often_as_asked) {
    steps.on_state(current(0));
    ASSERT_TRUE(std::holds_alternative<step::find_lost_writes>(steps.on_state(current(1'025))));
    EXPECT_TRUE(std::holds_alternative<step::wait>(steps.on_lost_writes(false))) << "PostgreSQL did not answer";
    for (int round = 0; round < 3; ++round) {
        EXPECT_FALSE(steps.is_settled());
        EXPECT_EQ(steps.changes(), round < 2 ? 0U : 1U);
        ASSERT_TRUE(std::holds_alternative<step::find_lost_writes>(steps.on_state(current(1'025)))) << round;
        steps.on_lost_writes(true);
    }
    EXPECT_TRUE(steps.is_settled());
    EXPECT_EQ(steps.changes(), 1U);
    EXPECT_TRUE(std::holds_alternative<step::wait>(steps.on_state(current(1'025))));
    EXPECT_EQ(ports.log, "hints 1025 lost recorded lost recorded lost recorded ");
}

TEST_F(generation_steps_test, lost_writes_are_looked_for_after_the_start) {
    ASSERT_TRUE(std::holds_alternative<step::find_lost_writes>(steps.on_state(current(1'025))))
        << "a write may have been acknowledged by the server before";
    steps.on_lost_writes(true);
    steps.on_state(current(1'025));
    steps.on_lost_writes(true);
    EXPECT_EQ(steps.changes(), 0U) << "this gateway has seen no change";
}

TEST_F(generation_steps_test, newer_floor_on_a_majority_shows_a_replaced_server) {
    steps.on_state(current(1'025));
    ports.statuses[0].floor_epoch = epoch{2'049};
    steps.on_state(current(1'025));
    EXPECT_TRUE(steps.is_current()) << "a minority may know of a change that was never finished";
    ports.statuses[2].floor_epoch = epoch{3'073};
    steps.on_state(std::nullopt);
    EXPECT_FALSE(steps.is_current());
    EXPECT_EQ(ports.required, epoch{2'049});
    steps.on_state(current(2'049));
    EXPECT_TRUE(steps.is_current());
}

TEST_F(generation_steps_test, lower_floor_of_an_older_server_is_ignored) {
    steps.on_state(current(2'049));
    const auto next = steps.on_state(current(1'025));
    ASSERT_TRUE(std::holds_alternative<step::wait>(next));
    EXPECT_TRUE(std::get<step::wait>(next).briefly);
    EXPECT_EQ(ports.required, epoch{2'049});
}

}  // namespace
}  // namespace fencegate::audit
