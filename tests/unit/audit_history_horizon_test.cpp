#include <gateway/audit/history_horizon.hpp>

#include <gtest/gtest.h>

using fencegate::history_horizon;

TEST(history_horizon, nobody_writes_then_all_is_settled) {
    audit::history_horizon horizon;
    EXPECT_FALSE(horizon.settled());
    EXPECT_EQ(horizon.advance({0, {}}), 0);
    EXPECT_EQ(horizon.advance({17, {}}), 17);
    EXPECT_FALSE(horizon.behind());
}

TEST(history_horizon, a_writer_stays_then_nothing_behind_it_is_settled_however_many_come_and_go) {
    audit::history_horizon horizon;
    horizon.advance({10, {}});
    EXPECT_EQ(horizon.advance({12, {"3/7", "4/1"}}), 10);
    EXPECT_EQ(horizon.advance({15, {"3/7", "5/1"}}), 10);
    EXPECT_EQ(horizon.advance({19, {"3/7"}}), 10);
    EXPECT_TRUE(horizon.behind());
    EXPECT_EQ(horizon.advance({21, {}}), 21);
}

TEST(history_horizon, writers_follow_one_another_then_what_was_noted_before_them_is_settled) {
    audit::history_horizon horizon;
    EXPECT_FALSE(horizon.advance({5, {"1/1"}}));
    EXPECT_EQ(horizon.advance({9, {"1/2"}}), 5);
    EXPECT_EQ(horizon.advance({12, {"1/3"}}), 9);
}

TEST(history_horizon, another_transaction_of_the_same_session_then_it_is_another_writer) {
    audit::history_horizon horizon;
    horizon.advance({5, {"1/1"}});
    EXPECT_EQ(horizon.advance({5, {"1/2"}}), 5);
}
