// Which rounds are repeated, and for how long: docs/protocol.md HOLDS. No node has a connection.
#include <proto/attempts.hpp>

#include <gtest/gtest.h>

#include <algorithm>

namespace lockcore {
namespace {

using namespace std::chrono_literals;

class no_services final : public authenticator, public random_source, public cluster_view {
  public:
    std::array<std::byte, size> sign(std::string_view) const override { return {}; }
    std::uint64_t next() override { return 0; }
    std::string find_duplicate(node_index, const std::string&) const override { return {}; }
    epoch highest_epoch() const override { return {}; }
    epoch highest_plausible_epoch(node_index) const override { return {}; }
    std::vector<fast_readmission::source> find_sources(node_index, std::size_t) const override { return {}; }
};

class round_repeater_test : public testing::Test {
  protected:
    explicit round_repeater_test(std::size_t nodes = 1) {
        config_.nodes.assign(nodes, {"node", "127.0.0.1", 1, {}, {}, {}, {}});
        for (std::size_t n = 0; n < nodes; ++n)
            links_.push_back(std::make_unique<node_link>(ctx_, static_cast<node_index>(n), services_, true));
    }

    /// Starts a RELEASE that no node gets. Only its repeater keeps it.
    std::weak_ptr<round_attempt> start_release(round_repeater& repeater) {
        const auto round = std::make_shared<round_attempt>(ctx_, command_kind::release, lease_call{}, lease_claims{},
                                                           links_, &repeater);
        round->start();
        EXPECT_EQ(round->machine().outcome(), majority_round::verdict::no_quorum);
        return round;
    }

    /// Lets one interval of the repeater pass.
    void tick(round_repeater& repeater) {
        ctx_.now.monotonic += round_repeater::interval;
        ctx_.now.validity += round_repeater::interval;
        repeater.tick(ctx_.now);
    }

  private:
    config config_;
    no_services services_;
    core_context ctx_{config_, services_, services_};
    std::vector<std::unique_ptr<node_link>> links_;
};

TEST_F(round_repeater_test, round_without_answer_is_dropped_after_duration) {
    round_repeater brief(1s), lasting(1h);
    const auto dropped = start_release(brief), kept = start_release(lasting);
    EXPECT_FALSE(dropped.expired());
    for (int n = 0; n < 100; ++n) {
        tick(brief);
        tick(lasting);
    }
    EXPECT_TRUE(dropped.expired());
    EXPECT_FALSE(kept.expired());
}

TEST_F(round_repeater_test, rounds_above_limit_are_not_kept) {
    round_repeater repeater(1h);
    std::vector<std::weak_ptr<round_attempt>> rounds;
    for (std::size_t n = 0; n < round_repeater::rounds_max + 3; ++n)
        rounds.push_back(start_release(repeater));
    const auto kept = [&rounds] {
        return std::ranges::count_if(rounds, [](const auto& round) { return !round.expired(); });
    };
    EXPECT_EQ(kept(), 16'384) << "as docs/protocol.md says";
    tick(repeater);
    EXPECT_EQ(kept(), 16'384);
    EXPECT_FALSE(rounds.front().expired()) << "the earliest ones stay";
    EXPECT_TRUE(rounds.back().expired());
}

class round_repeater_of_five_nodes : public round_repeater_test {
  protected:
    round_repeater_of_five_nodes() : round_repeater_test(5) {}
};

TEST_F(round_repeater_of_five_nodes, round_counts_once_for_the_limit) {
    round_repeater repeater(1h);
    const auto first = start_release(repeater);
    EXPECT_EQ(first.use_count(), 1) << "only the repeater keeps it";
    std::weak_ptr<round_attempt> last;
    for (std::size_t n = 1; n < round_repeater::rounds_max; ++n)
        last = start_release(repeater);
    EXPECT_FALSE(last.expired());
    tick(repeater);
    EXPECT_EQ(first.use_count(), 1);
    EXPECT_TRUE(start_release(repeater).expired());
}

}  // namespace
}  // namespace lockcore
