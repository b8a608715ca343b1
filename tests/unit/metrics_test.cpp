#include <gateway/metrics/labels.hpp>
#include <gateway/pg/executor/executor_status.hpp>

#include <gtest/gtest.h>

#include <string>

namespace fencegate {
namespace {

TEST(prefix_labels, name_then_its_first_part_and_never_the_whole) {
    metrics::prefix_labels labels;
    EXPECT_EQ(labels.of("inventory/sku-1"), "inventory");
    EXPECT_EQ(labels.of("a/b/c"), "a");
    EXPECT_EQ(labels.of("sku-1"), "-");
}

TEST(prefix_labels, many_invented_then_other_and_the_known_stay) {
    metrics::prefix_labels labels;
    for (std::size_t n = 0; n < metrics::prefix_labels::prefixes_max; ++n)
        EXPECT_EQ(labels.of("p" + std::to_string(n) + "/x"), "p" + std::to_string(n));
    EXPECT_EQ(labels.of("late/x"), "other");
    EXPECT_EQ(labels.of("p0/x"), "p0");
}

TEST(batch_sizes, counted_in_the_class_whose_bound_is_not_lower) {
    pg::batch_sizes sizes;
    for (const std::size_t writes : {0, 1, 2, 3, 4, 5, 33, 64, 65})
        sizes.count(writes);
    const std::size_t expected[pg::batch_sizes::classes] = {1, 1, 2, 1, 0, 0, 3};  // up to 1, 2, 4, 8, 16, 32, 64
    for (std::size_t n = 0; n < pg::batch_sizes::classes; ++n)
        EXPECT_EQ(sizes.counted(n), expected[n]) << n;
    EXPECT_EQ(sizes.writes(), 177u);
}

}  // namespace
}  // namespace fencegate
