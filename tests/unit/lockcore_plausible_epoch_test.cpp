// Epochs and tokens that one node claims: docs/protocol.md, CLAIMS OF ONE NODE.
#include "core_of_five_nodes.hpp"

#include <proto/epochs.hpp>

namespace lockcore {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t last_epoch = 2'097'151;

TEST(plausible_epoch, lead_over_the_others_is_bounded) {
    EXPECT_EQ(highest_plausible_epoch(epoch{7}, epoch{0}), epoch{65'543});
    EXPECT_EQ(highest_plausible_epoch(epoch{7}, epoch{70'000}), epoch{70'000}) << "the register has drawn it";
    EXPECT_EQ(highest_plausible_epoch(epoch{7}, epoch{9}), epoch{65'543}) << "no lead over what the register has drawn";
    EXPECT_EQ(highest_plausible_epoch(epoch{2'097'000}, epoch{0}), epoch{last_epoch});
    EXPECT_EQ(highest_plausible_epoch(epoch{~std::uint64_t{0}}, epoch{0}), epoch{last_epoch});
    EXPECT_EQ(highest_plausible_epoch(epoch{0}, epoch{9'999'999}), epoch{last_epoch});
}

TEST(plausible_epoch, reason_names_epoch_and_limit) {
    EXPECT_EQ(find_implausible_epoch(epoch{65'543}, epoch{65'543}), "");
    EXPECT_NE(find_implausible_epoch(epoch{65'544}, epoch{65'543}).find("65544 is more than 65536 above"),
              std::string::npos);
    EXPECT_NE(find_implausible_epoch(epoch{2'097'152}, epoch{last_epoch}).find("2097152 is not below 2^21"),
              std::string::npos);
}

TEST(token_memory, token_that_does_not_fit_is_not_kept) {
    token_memory memory;
    const std::vector resources{resource_name::parse("r").value()};
    memory.observe(resources, fencing_token{fencing_token_max + 1});
    EXPECT_EQ(memory.hint_for(resources, fencing_token{}), fencing_token{1});
    memory.observe(resources, fencing_token{fencing_token_max});
    EXPECT_EQ(memory.highest_epoch(resources), epoch{last_epoch});
}

using action_of_supervisor = node_supervisor::action;

TEST(node_supervisor, implausible_epoch_then_the_register_is_asked_once) {
    node_supervisor s(60s);
    s.connected();
    node_facts f = admitted_node(70'000);
    f.implausible_epoch = "its epoch";
    EXPECT_EQ(s.identified(f, monotonic_time{1h}).next, action_of_supervisor::find_record);
    EXPECT_EQ(s.state(), node_state::misconfigured);
    EXPECT_EQ(s.detail(), "its epoch");
    EXPECT_EQ(s.record_found({}, monotonic_time{1h}).next, action_of_supervisor::identify);
    const auto again = s.identified(f, monotonic_time{1h});
    EXPECT_EQ(again.next, action_of_supervisor::identify);
    EXPECT_EQ(again.delay, node_supervisor::recheck_delay);
    f.implausible_epoch.clear();
    EXPECT_EQ(s.identified(f, monotonic_time{1h}).next, action_of_supervisor::vote);
}

/// The last of the five nodes claims what it likes.
class claims_of_a_node : public core_of_five_nodes {
  protected:
    static constexpr std::size_t hostile = 4;
};

constexpr std::uint64_t token_of(std::uint64_t epoch_number, std::uint64_t count = 1) {
    return epoch_number * tokens_per_epoch + count;
}

TEST_F(claims_of_a_node, implausible_floor_then_no_vote_and_no_draw_above_it) {
    facts_[hostile].floor_epoch = epoch{2'097'150};
    review();
    EXPECT_EQ(status(hostile).state, node_state::misconfigured);
    EXPECT_NE(status(hostile).detail.find("its epoch 2097150 is more than 65536 above"), std::string::npos);
    EXPECT_EQ(status(hostile).observed_epoch, epoch{7}) << "the base counts";
    facts_[0].admitted_run_id.clear();  // as after a restart
    review();
    EXPECT_EQ(seen_, std::vector<std::uint64_t>{7});
    facts_[hostile].floor_epoch = epoch{};
    review();
    EXPECT_EQ(status(hostile).state, node_state::voting);
}

TEST_F(claims_of_a_node, epoch_that_the_register_drew_for_it_is_plausible) {
    facts_[hostile].admitted_epoch = epoch{90'000};
    record_.known = true;
    record_.latest_epoch = epoch{90'000};
    review();
    EXPECT_EQ(status(hostile).state, node_state::voting);
    EXPECT_EQ(status(hostile).observed_epoch, epoch{90'000});
}

TEST_F(claims_of_a_node, implausible_token_is_an_error_and_not_kept) {
    reply_with(hostile, reply_status::ok, fencing_token_max);
    ASSERT_TRUE(acquire());
    EXPECT_EQ(value_of((*lease_)->claims.token), token_of(7));
    reply_with(hostile, reply_status::held, token_of(65'544));
    ASSERT_TRUE(acquire());
    EXPECT_EQ(value_of((*lease_)->claims.token), token_of(7, 2));
    EXPECT_EQ(seen_, std::vector<std::uint64_t>{});
}

TEST_F(claims_of_a_node, ignored_grant_is_undone) {
    reply_with(hostile, reply_status::ok, fencing_token_max);
    for (std::size_t n = 0; n < 3; ++n)
        reply_with(n, reply_status::held, token_of(7));
    ASSERT_FALSE(acquire());
    EXPECT_TRUE(undone_[hostile]);
    EXPECT_EQ(hint_, fencing_token{token_of(7)});
    reply_all(reply_status::ok);
    ASSERT_TRUE(acquire());
    EXPECT_EQ(value_of((*lease_)->claims.token), token_of(7, 2));
}

TEST_F(claims_of_a_node, overflow_of_one_node_draws_no_epoch) {
    reply_all(reply_status::held, token_of(7));
    reply_with(hostile, reply_status::overflow);
    EXPECT_FALSE(acquire());
    EXPECT_EQ(lease_->error().code, errc::resource_locked);
    EXPECT_EQ(seen_, std::vector<std::uint64_t>{});
}

TEST_F(claims_of_a_node, overflow_of_a_majority_draws_above_the_tokens) {
    // The tokens belong to a later epoch than any base: an earlier overflow had it drawn.
    reply_all(reply_status::ok, token_of(9, tokens_per_epoch - 1));
    ASSERT_TRUE(acquire());
    reply_all(reply_status::overflow);
    EXPECT_FALSE(acquire());
    EXPECT_EQ(seen_, std::vector<std::uint64_t>{9});
    EXPECT_EQ(hint_, fencing_token{token_of(10)});
}

TEST_F(claims_of_a_node, implausible_tokens_of_a_majority_then_next_attempt_grants) {
    reply_all(reply_status::ok, token_of(80'000));
    EXPECT_FALSE(acquire());
    EXPECT_TRUE(acquire());
    EXPECT_EQ(seen_, std::vector<std::uint64_t>{});
}

TEST_F(claims_of_a_node, implausible_behind_is_no_answer) {
    announced_[0] = "900";
    announced_[hostile] = "2097150";
    step(input::announce_floor{call_id{99}, {epoch{1'031}, "id"}});
    ASSERT_TRUE(outcome_ && outcome_->has_value());
    EXPECT_EQ((*outcome_)->too_close, epoch{900});
    EXPECT_TRUE((*outcome_)->by_majority);
}

}  // namespace
}  // namespace lockcore
