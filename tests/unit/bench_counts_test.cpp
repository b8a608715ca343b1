#include <gateway/bench/counts.hpp>

#include <gtest/gtest.h>

#include <thread>

using namespace fencegate::bench;
using namespace std::chrono_literals;

namespace {

const auto later = bench_clock::now() + 1h;
const auto over = bench_clock::now() - 1ms;

TEST(bench_counts, grant_while_another_is_valid_is_a_violation) {
    bench_counts counts(0);
    counts.add_grant("a", 1, later);
    counts.add_grant("b", 1, later);
    EXPECT_EQ(counts.violations(), 0U);
    counts.add_grant("a", 2, later);
    EXPECT_EQ(counts.violations(), 1U);
}

TEST(bench_counts, grant_after_release_or_expiry_is_none) {
    bench_counts counts(0);
    counts.add_grant("a", 1, later);
    counts.end_grant("a");
    const auto until = bench_clock::now() + 2ms;
    counts.add_grant("a", 2, until);
    std::this_thread::sleep_until(until);
    counts.add_grant("a", 3, later);
    EXPECT_EQ(counts.violations(), 0U);
}

TEST(bench_counts, token_that_did_not_grow_is_a_violation) {
    bench_counts counts(0);
    counts.add_grant("a", 2, later);
    counts.end_grant("a");
    counts.add_grant("a", 1, over);  // read too late to say anything
    EXPECT_EQ(counts.violations(), 0U);
    counts.add_grant("a", 2, later);
    EXPECT_EQ(counts.violations(), 1U);
    EXPECT_NE(counts.text().find("1 tokens that did not grow"), std::string::npos);
}

}  // namespace
