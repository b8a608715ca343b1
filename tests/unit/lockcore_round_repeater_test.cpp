// Which rounds are repeated, and for how long: docs/protocol.md HOLDS. The only node has no connection.
#include <runtime/attempt.hpp>

#include <lockcore/boot_clock.hpp>

#include <gtest/gtest.h>

#include <algorithm>

namespace lockcore {
namespace {

using namespace std::chrono_literals;

/// What a node without a connection never asks for.
class unused_services final : public epoch_register, public random_source, public redis::link_observer {
  public:
    boost::asio::awaitable<result<node_record>> find(std::string) override { co_return node_record{}; }
    boost::asio::awaitable<result<drawn_epoch>> draw(epoch_request) override { co_return drawn_epoch{}; }
    boost::asio::awaitable<result<void>> note_unsynced(std::string) override { co_return result<void>{}; }
    std::uint64_t next() override { return 0; }
    std::string find_duplicate(node_index, const std::string&) const override { return {}; }
    epoch highest_epoch() const override { return {}; }
    void on_node_event(node_index, event_kind, const std::string&) override {}
    void on_state_changed(node_index) override {}
};

class round_repeater_test : public testing::Test {
  protected:
    round_repeater_test() {
        config_.nodes.push_back({"only", "127.0.0.1", 1, {}, {}});
        links_.push_back(std::make_shared<redis::node_link>(
            io_, node_index{0}, config_, redis::admission::collaborators{services_, services_, services_}));
    }

    /// Starts a RELEASE that no node gets. Only its repeater keeps it.
    std::weak_ptr<round_attempt> start_release(const std::shared_ptr<round_repeater>& repeater) {
        const auto round = std::make_shared<round_attempt>(command_kind::release, redis::lease_call{}, lease_claims{},
                                                           links_, repeater);
        round->start();
        EXPECT_EQ(round->machine().outcome(), majority_round::verdict::no_quorum);
        return round;
    }

    /// Lets one interval of the repeater pass.
    void tick(round_repeater& repeater) {
        now_ += round_repeater::interval;
        repeater.tick(now_);
    }

  private:
    boost::asio::io_context io_;
    config config_;
    unused_services services_;
    std::vector<std::shared_ptr<redis::node_link>> links_;
    monotonic_time now_{1h};
};

TEST_F(round_repeater_test, round_without_answer_is_dropped_after_duration) {
    constexpr auto duration = 20ms;
    const auto brief = std::make_shared<round_repeater>(duration);
    const auto lasting = std::make_shared<round_repeater>(1h);
    const auto dropped = start_release(brief), kept = start_release(lasting);
    EXPECT_FALSE(dropped.expired());
    for (const auto started_by = boot_clock::now(); boot_clock::now() < started_by + duration;) {
    }
    for (int n = 0; n < 100; ++n) {
        tick(*brief);
        tick(*lasting);
    }
    EXPECT_TRUE(dropped.expired());
    EXPECT_FALSE(kept.expired());
}

TEST_F(round_repeater_test, rounds_above_limit_are_not_kept) {
    const auto repeater = std::make_shared<round_repeater>(1h);
    std::vector<std::weak_ptr<round_attempt>> rounds;
    for (std::size_t n = 0; n < round_repeater::rounds_max + 3; ++n)
        rounds.push_back(start_release(repeater));
    const auto kept = [&rounds] {
        return std::ranges::count_if(rounds, [](const auto& round) { return !round.expired(); });
    };
    EXPECT_EQ(kept(), 16'384) << "as docs/protocol.md says";
    tick(*repeater);
    EXPECT_EQ(kept(), 16'384);
    EXPECT_FALSE(rounds.front().expired()) << "the earliest ones stay";
    EXPECT_TRUE(rounds.back().expired());
}

}  // namespace
}  // namespace lockcore
