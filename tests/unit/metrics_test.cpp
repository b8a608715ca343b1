#include <gateway/metrics/meters.hpp>
#include <gateway/pg/write/write_executor.hpp>

#include <gtest/gtest.h>

#include <string>

namespace fencegate {
namespace {

TEST(prefix_labels, label_is_first_part_of_name) {
    metrics::prefix_labels labels;
    EXPECT_EQ(labels.label_of("inventory/sku-1"), "inventory");
    EXPECT_EQ(labels.label_of("a/b/c"), "a");
    EXPECT_EQ(labels.label_of("sku-1"), "-");
}

TEST(prefix_labels, further_prefixes_become_other) {
    metrics::prefix_labels labels;
    for (std::size_t n = 0; n < metrics::prefix_labels::prefixes_max; ++n)
        EXPECT_EQ(labels.label_of("p" + std::to_string(n) + "/x"), "p" + std::to_string(n));
    EXPECT_EQ(labels.label_of("late/x"), "other");
    EXPECT_EQ(labels.label_of("p0/x"), "p0");
}

TEST(batch_sizes, sizes_counted_by_power_of_two) {
    pg::batch_sizes sizes;
    for (const std::size_t writes : {0, 1, 2, 3, 4, 5, 33, 64, 65})
        sizes.count(writes);
    const std::size_t expected[pg::batch_sizes::classes] = {1, 1, 2, 1, 0, 0, 2, 1};  // up to 1, 2, 4 … 64, and more
    for (std::size_t n = 0; n < pg::batch_sizes::classes; ++n)
        EXPECT_EQ(sizes.counted(n), expected[n]) << n;
    EXPECT_EQ(sizes.writes(), 177u);
}

}  // namespace
}  // namespace fencegate
