// RENEW, INSPECT and RELEASE over a majority.
#include <proto/majority_round.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lockcore {
namespace {

using verdict = majority_round::verdict;
constexpr node_index node(std::size_t n) {
    return static_cast<node_index>(n);
}
node_reply answer(reply_status s, std::uint64_t value = 0, milliseconds left = milliseconds{0}) {
    node_reply r;
    r.status = s;
    r.value = value;
    r.remaining = left;
    return r;
}

TEST(majority_round, says_yes_as_soon_as_a_majority_did_it) {
    majority_round r(5);
    EXPECT_EQ(r.answered(node(0), answer(reply_status::ok)), verdict::pending);
    EXPECT_EQ(r.answered(node(4), answer(reply_status::ok)), verdict::pending);
    EXPECT_EQ(r.answered(node(2), answer(reply_status::ok)), verdict::yes);
}

TEST(majority_round, says_lost_as_soon_as_a_majority_cannot_hold_it) {
    majority_round r(5);
    r.answered(node(0), answer(reply_status::lost));
    r.answered(node(1), answer(reply_status::lost));
    EXPECT_EQ(r.answered(node(2), answer(reply_status::lost)), verdict::lost);
}

TEST(majority_round, says_no_quorum_when_too_few_answer) {
    majority_round r(5);
    for (std::size_t n = 0; n < 3; ++n)
        r.answered(node(n), answer(reply_status::timeout));
    r.answered(node(3), answer(reply_status::ok));
    EXPECT_EQ(r.answered(node(4), answer(reply_status::ok)), verdict::no_quorum) << "it may live on the silent ones";
}

TEST(majority_round, says_exhausted_when_a_majority_holds_it_and_some_refuse_another_renewal) {
    majority_round r(3);
    r.answered(node(0), answer(reply_status::exhausted));
    r.answered(node(1), answer(reply_status::lost));
    EXPECT_EQ(r.answered(node(2), answer(reply_status::exhausted)), verdict::exhausted);
}

TEST(majority_round, takes_an_answer_that_comes_after_its_timeout) {
    majority_round r(3);
    r.answered(node(0), answer(reply_status::timeout));
    r.answered(node(1), answer(reply_status::ok));
    EXPECT_EQ(r.answered(node(0), answer(reply_status::ok)), verdict::yes);
    EXPECT_EQ(r.yes(), 2U);
}

TEST(majority_round, tells_how_long_a_majority_keeps_it) {
    majority_round r(5);
    r.answered(node(0), answer(reply_status::ok, 0, milliseconds{100}));
    r.answered(node(1), answer(reply_status::ok, 2, milliseconds{900}));
    r.answered(node(2), answer(reply_status::ok, 1, milliseconds{400}));
    EXPECT_EQ(r.remaining(), milliseconds{100});
    EXPECT_EQ(r.value(), 2U);
}

TEST(majority_round, agrees_with_a_dumb_twin_for_every_table_of_answers) {
    std::mt19937 shuffle(1);
    const std::array kinds{reply_status::ok, reply_status::lost, reply_status::exhausted, reply_status::timeout};
    for (unsigned table = 0; table < 1024; ++table) {
        std::array<std::size_t, 4> count{};
        std::array<reply_status, 5> answers{};
        for (std::size_t n = 0; n < 5; ++n) {
            ++count[table >> (2 * n) & 3];
            answers[n] = kinds[table >> (2 * n) & 3];
        }
        verdict expected = verdict::no_quorum;
        if (count[0] >= 3) {
            expected = verdict::yes;
        } else if (count[0] + count[2] >= 3) {
            expected = verdict::exhausted;
        } else if (count[1] >= 3 || count[3] == 0) {  // else the silent nodes may hold it
            expected = verdict::lost;
        }
        for (int order = 0; order < 12; ++order) {
            std::array<std::size_t, 5> arrival{0, 1, 2, 3, 4};
            std::shuffle(arrival.begin(), arrival.end(), shuffle);
            majority_round r(5);
            for (const std::size_t n : arrival)
                r.answered(node(n), answer(answers[n]));
            ASSERT_EQ(r.outcome(), expected) << "table " << table << " order " << order;
        }
    }
}

node_reply holding(std::uint32_t holds) {
    node_reply r = answer(reply_status::ok);
    r.count = holds;
    return r;
}

TEST(majority_round, counts_the_holds_on_which_a_majority_agrees) {
    majority_round r(5);
    r.answered(node(0), holding(3));
    r.answered(node(1), holding(1));
    r.answered(node(2), holding(2));
    EXPECT_EQ(r.holds(), 1U);
    r.answered(node(3), holding(2));
    EXPECT_EQ(r.holds(), 2U);
    r.answered(node(4), answer(reply_status::lost));
    EXPECT_EQ(r.holds(), 2U);
}

TEST(majority_round, waits_for_more_answers_when_they_decide_whether_a_hold_is_left) {
    majority_round r(5);
    r.answered(node(0), holding(0));
    r.answered(node(1), holding(0));
    EXPECT_EQ(r.answered(node(2), holding(1)), verdict::yes);
    EXPECT_FALSE(r.holds_settled()) << "two more may have one";
    r.answered(node(3), holding(1));
    EXPECT_FALSE(r.holds_settled());
    r.answered(node(4), answer(reply_status::timeout));
    EXPECT_TRUE(r.holds_settled());
    EXPECT_EQ(r.holds(), 0U);
}

TEST(majority_round, tells_the_most_that_one_node_told_of_the_end) {
    majority_round r(3);
    const auto told = [](std::uint32_t n) {
        node_reply reply = answer(reply_status::ok);
        reply.told = n;
        return reply;
    };
    EXPECT_EQ(r.told(), 0U);
    r.answered(node(0), told(2));
    r.answered(node(1), told(5));
    r.answered(node(2), told(1));
    EXPECT_EQ(r.told(), 5U);
}

// Five nodes, each of: gone with its last hold, one hold left, two left, silent. The twin tries every way in which
// those still out may answer.
TEST(majority_round, agrees_with_a_dumb_twin_on_holds_for_every_table_of_answers) {
    const auto majority_holds = [](const std::array<unsigned, 5>& said, unsigned holds) {
        return std::count_if(said.begin(), said.end(), [&](unsigned s) { return s < 3 && s >= holds; }) >= 3;
    };
    std::mt19937 shuffle(1);
    for (unsigned table = 0; table < 1024; ++table) {
        std::array<std::size_t, 5> arrival{0, 1, 2, 3, 4};
        std::shuffle(arrival.begin(), arrival.end(), shuffle);
        majority_round r(5);
        std::array<unsigned, 5> said{};
        said.fill(3);
        for (std::size_t heard = 1; heard <= 5; ++heard) {
            const std::size_t n = arrival[heard - 1];
            said[n] = table >> (2 * n) & 3;
            r.answered(node(n), said[n] == 3 ? answer(reply_status::timeout) : holding(said[n]));
            ASSERT_EQ(r.holds(), majority_holds(said, 2) ? 2U : majority_holds(said, 1) ? 1U : 0U) << table;
            bool some = false, none = false;
            for (unsigned rest = 0; rest < 1U << (5 - heard); ++rest) {
                std::array<unsigned, 5> whole = said;
                for (std::size_t i = heard; i < 5; ++i)
                    whole[arrival[i]] = rest >> (i - heard) & 1;
                (majority_holds(whole, 1) ? some : none) = true;
            }
            ASSERT_EQ(r.holds_settled(), some != none) << "table " << table << " after " << heard;
        }
    }
}

}  // namespace
}  // namespace lockcore
