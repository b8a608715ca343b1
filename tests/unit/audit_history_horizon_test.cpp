#include <gateway/audit/history_feed.hpp>

#include <gtest/gtest.h>

using namespace fencegate;

TEST(history_horizon, no_writers_all_settled) {
    audit::history_horizon horizon;
    EXPECT_FALSE(horizon.settled());
    EXPECT_EQ(horizon.advance({0, {}}), 0);
    EXPECT_EQ(horizon.advance({17, {}}), 17);
    EXPECT_FALSE(horizon.has_unsettled_ids());
}

TEST(history_horizon, open_writer_stops_settling) {
    audit::history_horizon horizon;
    horizon.advance({10, {}});
    EXPECT_EQ(horizon.advance({12, {"3/7", "4/1"}}), 10);
    EXPECT_EQ(horizon.advance({15, {"3/7", "5/1"}}), 10);
    EXPECT_EQ(horizon.advance({19, {"3/7"}}), 10);
    EXPECT_TRUE(horizon.has_unsettled_ids());
    EXPECT_EQ(horizon.advance({21, {}}), 21);
}

TEST(history_horizon, earlier_ids_settle_while_writers_change) {
    audit::history_horizon horizon;
    EXPECT_FALSE(horizon.advance({5, {"1/1"}}));
    EXPECT_EQ(horizon.advance({9, {"1/2"}}), 5);
    EXPECT_EQ(horizon.advance({12, {"1/3"}}), 9);
}

TEST(history_horizon, next_transaction_is_another_writer) {
    audit::history_horizon horizon;
    horizon.advance({5, {"1/1"}});
    EXPECT_EQ(horizon.advance({5, {"1/2"}}), 5);
}
