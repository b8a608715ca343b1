#include <gateway/domain/memory_budget.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace fencegate {
namespace {

using namespace std::chrono_literals;

TEST(memory_budget, reservation_above_share_refused_for_that_owner_only) {
    memory_budget budget(100);
    EXPECT_TRUE(budget.try_reserve("a", 75));
    EXPECT_FALSE(budget.try_reserve("a", 1));
    EXPECT_TRUE(budget.exceeds_share("a", 1));
    EXPECT_FALSE(budget.exceeds_share("b", 75));
    EXPECT_TRUE(budget.try_reserve("b", 25));
    EXPECT_FALSE(budget.try_reserve("c", 1));
    EXPECT_EQ(budget.used(), 100U);
    budget.release("a", 75);
    EXPECT_TRUE(budget.fits("c", 75));
    EXPECT_FALSE(budget.fits("c", 76));
}

TEST(memory_budget, reserved_memory_destroyed_all_bytes_released) {
    memory_budget budget(100);
    {
        reserved_memory held(budget, "a");
        EXPECT_TRUE(held.try_grow(40));
        EXPECT_FALSE(held.try_grow(36));
        held.grow(80);
        EXPECT_EQ(held.bytes(), 120U);
        EXPECT_EQ(budget.used(), 120U);
    }
    EXPECT_EQ(budget.used(), 0U);
    EXPECT_TRUE(budget.fits("a", 75));
}

TEST(memory_budget, refusal_older_than_retry_interval_forgotten) {
    memory_budget budget(100);
    const auto now = std::chrono::steady_clock::now();
    EXPECT_FALSE(budget.latest_refusal(now));
    EXPECT_FALSE(budget.try_reserve("a", 76));
    const auto refused = budget.latest_refusal(now);
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->owner, "a");
    EXPECT_EQ(refused->bytes, 76U);
    EXPECT_FALSE(budget.latest_refusal(now + 3s));
}

}  // namespace
}  // namespace fencegate
