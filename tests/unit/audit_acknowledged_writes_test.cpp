#include <gateway/audit/storage_watch.hpp>

#include <gtest/gtest.h>

#include <cstdio>

namespace fencegate::audit {
namespace {

using namespace std::chrono_literals;

std::string write_id(unsigned number) {
    char text[37];
    std::snprintf(text, sizeof text, "01a20904-beb3-7d9e-9c81-%012x", number);
    return text;
}

TEST(acknowledged_writes, lists_them_in_order_without_the_forgotten_ones) {
    acknowledged_writes writes;
    for (unsigned n = 0; n < 4; ++n)
        writes.add(write_id(n), {});
    writes.forget({write_id(1), write_id(9)});
    EXPECT_EQ(writes.list(), (std::vector{write_id(0), write_id(2), write_id(3)}));
    EXPECT_EQ(writes.list().size(), 3U) << "listing forgets nothing";
}

TEST(acknowledged_writes, keeps_the_minute_before_the_latest_one) {
    acknowledged_writes writes;
    const acknowledged_writes::time_point begin{};
    writes.add(write_id(1), begin);
    writes.add(write_id(2), begin + 1s);
    writes.add(write_id(3), begin + 60s);
    EXPECT_EQ(writes.list().size(), 3U);
    writes.add(write_id(4), begin + 61s);
    EXPECT_EQ(writes.list(), (std::vector{write_id(2), write_id(3), write_id(4)}));
}

TEST(acknowledged_writes, keeps_the_newest_up_to_the_limit) {
    acknowledged_writes writes;
    for (unsigned n = 0; n <= acknowledged_writes::kept_max; ++n)
        writes.add(write_id(n), {});
    const auto kept = writes.list();
    EXPECT_EQ(kept.size(), acknowledged_writes::kept_max);
    EXPECT_EQ(kept.front(), write_id(1));
}

}  // namespace
}  // namespace fencegate::audit
