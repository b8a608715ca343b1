#include <gateway/runtime/log.hpp>

#include <gtest/gtest.h>

using namespace fencegate::runtime;
using namespace std::chrono_literals;

TEST(line_limit, lines_above_the_limit_are_counted_for_the_next_second) {
    line_limit limit(2);
    const auto start = line_limit::clock::now();
    EXPECT_EQ(limit.admit(start), 0U);
    EXPECT_EQ(limit.admit(start + 10ms), 0U);
    EXPECT_EQ(limit.admit(start + 20ms), std::nullopt);
    EXPECT_EQ(limit.admit(start + 999ms), std::nullopt);
    EXPECT_EQ(limit.admit(start + 1s), 2U);
    EXPECT_EQ(limit.admit(start + 1s), 0U) << "they are reported once";
}
