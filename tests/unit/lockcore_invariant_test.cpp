#include <gtest/gtest.h>
#include <gateway/domain/memory_budget.hpp>
#include <lockcore/invariant.hpp>
#include <proto/wait_queues.hpp>

namespace lockcore {
namespace {

TEST(invariant, holds_nothing_happens) {
    LOCKCORE_INVARIANT(1 + 1 == 2);
}

TEST(invariant, broken_process_ends_with_the_condition_and_its_place) {
    const int granted = 3;
    EXPECT_DEATH(LOCKCORE_INVARIANT(granted < 3),
                 R"(broken invariant.*granted < 3 \(lockcore_invariant_test.cpp:[0-9]+\))");
}

TEST(invariant, head_of_queue_without_waiters_process_ends) {
    const wait_queue queue({3, 1});
    EXPECT_DEATH(queue.head(), "waiting_.empty");
}

TEST(invariant, bytes_released_twice_process_ends) {
    fencegate::memory_budget budget(100);
    budget.reserve("a", 10);
    budget.release("a", 10);
    EXPECT_DEATH(budget.release("a", 10), "used_ >= bytes");
}

}  // namespace
}  // namespace lockcore
