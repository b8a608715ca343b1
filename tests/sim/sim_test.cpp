// The simulation as a test suite: several thousand seeds, repeated seeds, and every mutation until
// its checker finds it.
#include <sim/world/world.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sim {
namespace {

/// Sanitizers are slow and look for memory errors, for which few seeds are enough.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t seeds = 300;
constexpr bool sanitized = true;
#else
constexpr std::uint64_t seeds = 8'000;
constexpr bool sanitized = false;
#endif

std::string describe_failure(const outcome& o) {
    return o.broken_promise
               ? std::string(to_string(o.broken_promise->found_by)) + ": " + o.broken_promise->text +
                     "\nrepeat with: sim --seed " + std::to_string(o.config.seed) + " --trace\n" + describe(o.config)
               : std::string();
}

/// Runs the seeds from 1 on, until one breaks a promise, and counts the probes.
void run_seeds(std::uint64_t count, const overrides& wanted, probe_counts& probes) {
    for (std::uint64_t seed = 1; seed <= count; ++seed) {
        const outcome o = run_seed(seed, wanted);
        ASSERT_FALSE(o.broken_promise) << describe_failure(o);
        probes.add(o.probes);
    }
}

TEST(sim, many_seeds_break_no_promise_and_reach_every_probe) {
    probe_counts probes;
    ASSERT_NO_FATAL_FAILURE(run_seeds(seeds, {}, probes));
    // No seed draws these profiles; without them a mutation that they find would prove nothing.
    for (const profile kind : {profile::ends_of_sync, profile::drifting}) {
        overrides wanted;
        wanted.kind = kind;
        ASSERT_NO_FATAL_FAILURE(run_seeds(seeds / 4, wanted, probes));
    }
    if (sanitized) return;
    for (std::size_t p = 0; p < probe_count; ++p) {
        const auto path = static_cast<probe>(p);
        EXPECT_GT(probes.of(path), 0U) << to_string(path) << " was never reached, so the seeds do not test it";
    }
}

TEST(sim, same_seed_gives_the_same_trace) {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        const outcome first = run_seed(seed), second = run_seed(seed);
        ASSERT_EQ(first.trace_hash, second.trace_hash) << "seed " << seed;
        ASSERT_EQ(first.unseed, second.unseed) << "seed " << seed;
        ASSERT_EQ(first.events, second.events) << "seed " << seed;
    }
}

TEST(sim, different_seeds_give_different_traces) {
    EXPECT_NE(run_seed(1).trace_hash, run_seed(2).trace_hash);
    EXPECT_NE(run_seed(1).unseed, run_seed(2).unseed);
}

TEST(sim, generator_gives_the_same_numbers_everywhere) {
    random r(1);
    EXPECT_EQ(r.next(), 12966619160104079557ULL);
    EXPECT_EQ(r.below(1'000), 520U);
    microseconds sum{0};
    constexpr int draws = 100'000;
    for (int i = 0; i < draws; ++i)
        sum += r.draw_around(microseconds{1'000});
    EXPECT_NEAR(static_cast<double>(sum.count()) / draws, 1'000.0, 50.0);
}

/// Shows that each checker can find a violation.
class every_mutation : public testing::TestWithParam<mutation_row> {};

TEST_P(every_mutation, is_found_by_its_checker) {
    const mutation_row& row = GetParam();
    overrides w;
    w.active_mutation = row.id;
    w.only_checker = row.caught_by;
    if (row.profile) w.kind = find_profile(row.profile);
    const std::uint64_t most = sanitized ? 200 : 60'000;
    for (std::uint64_t seed = 1; seed <= most; ++seed) {
        if (run_seed(seed, w).broken_promise) return;
    }
    if (!sanitized) FAIL() << row.left_out << " was left out, but " << to_string(row.caught_by) << " did not notice";
}

std::vector<mutation_row> mutations_of_suite() {
    std::vector<mutation_row> rows(mutations().begin(), mutations().end());
    std::erase_if(rows, [](const mutation_row& row) { return row.rare; });
    return rows;
}

INSTANTIATE_TEST_SUITE_P(sim, every_mutation, testing::ValuesIn(mutations_of_suite()),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace sim
