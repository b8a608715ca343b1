// The simulation as a suite: a few thousand seeds, the same seed twice, and every mutation until its checker finds it.
#include <sim/world/world.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sim {
namespace {

/// Sanitizers are slow, and seeds that are run with them find other things: memory, not interleavings.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t seeds = 300;
constexpr bool sanitized = true;
#else
constexpr std::uint64_t seeds = 8'000;
constexpr bool sanitized = false;
#endif

std::string again(const outcome& o) {
    return o.broken ? std::string(to_string(o.broken->by)) + ": " + o.broken->what + "\nagain: sim --seed " +
                          std::to_string(o.set.seed) + " --trace\n" + describe(o.set)
                    : std::string();
}

TEST(sim, keeps_every_promise_and_goes_every_rare_path_when_run_over_many_seeds) {
    probe_counts probes;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        const outcome o = run_seed(seed);
        ASSERT_FALSE(o.broken) << again(o);
        probes.add(o.probes);
    }
    if (sanitized) return;
    for (std::size_t p = 0; p < probe_count; ++p) {
        const auto which = static_cast<probe>(p);
        EXPECT_GT(probes.of(which), 0U) << to_string(which) << " was never reached: the seeds prove nothing about it";
    }
}

/// Else a mutation that is looked for in such a world would be found without being there.
TEST(sim, keeps_every_promise_in_worlds_that_no_seed_draws) {
    for (const profile about : {profile::ends_of_sync, profile::drifting}) {
        wishes w;
        w.about = about;
        for (std::uint64_t seed = 1; seed <= seeds / 20; ++seed) {
            const outcome o = run_seed(seed, w);
            ASSERT_FALSE(o.broken) << again(o);
        }
    }
}

TEST(sim, goes_the_same_way_when_a_seed_is_run_twice) {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        const outcome one = run_seed(seed), other = run_seed(seed);
        ASSERT_EQ(one.trace_hash, other.trace_hash) << "seed " << seed;
        ASSERT_EQ(one.unseed, other.unseed) << "seed " << seed;
        ASSERT_EQ(one.events, other.events) << "seed " << seed;
    }
}

TEST(sim, goes_another_way_when_the_seed_is_another) {
    EXPECT_NE(run_seed(1).trace_hash, run_seed(2).trace_hash);
    EXPECT_NE(run_seed(1).unseed, run_seed(2).unseed);
}

TEST(sim, draws_the_same_numbers_on_every_machine) {
    random r(1);
    EXPECT_EQ(r.next(), 12966619160104079557ULL);
    EXPECT_EQ(r.below(1'000), 520U);
    microseconds sum{0};
    constexpr int draws = 100'000;
    for (int i = 0; i < draws; ++i)
        sum += r.about(microseconds{1'000});
    EXPECT_NEAR(static_cast<double>(sum.count()) / draws, 1'000.0, 50.0);
}

/// A checker that never finds anything would find nothing here either.
class every_mutation : public testing::TestWithParam<mutation_row> {};

TEST_P(every_mutation, is_caught_by_the_checker_that_is_named_for_it) {
    const mutation_row& row = GetParam();
    wishes w;
    w.broken = row.what;
    w.only = row.caught_by;
    if (row.profile) w.about = find_profile(row.profile);
    const std::uint64_t most = sanitized ? 200 : 60'000;
    for (std::uint64_t seed = 1; seed <= most; ++seed) {
        if (run_seed(seed, w).broken) return;
    }
    if (!sanitized) FAIL() << row.left_out << " was left out, and " << to_string(row.caught_by) << " did not notice";
}

std::vector<mutation_row> looked_for() {
    std::vector<mutation_row> rows(mutations().begin(), mutations().end());
    std::erase_if(rows, [](const mutation_row& row) { return row.rare; });
    return rows;
}

INSTANTIATE_TEST_SUITE_P(sim, every_mutation, testing::ValuesIn(looked_for()),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace sim
