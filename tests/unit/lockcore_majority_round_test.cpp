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

/// A hold a letter, a to f.
std::string ids(std::string_view letters) {
    std::string out;
    for (const char letter : letters)
        out += (out.empty() ? "" : ",") + std::string(hold_id::size, letter);
    return out;
}
node_reply holding(std::string_view live, std::string_view released = {}) {
    node_reply r = answer(reply_status::ok);
    r.text = ids(live) + '\n' + ids(released) + '\n';
    return r;
}

TEST(majority_round, counts_a_hold_that_one_of_a_majority_has) {
    majority_round r(5);
    r.answered(node(0), holding("ab"));
    r.answered(node(1), holding("ac"));
    EXPECT_EQ(r.answered(node(2), holding("a")), verdict::yes);
    EXPECT_EQ(r.holds(), 3U);
}

TEST(majority_round, counts_no_hold_that_one_of_a_majority_knows_to_be_released) {
    majority_round r(5);
    r.answered(node(0), holding("ab"));
    r.answered(node(1), holding("ab"));
    EXPECT_EQ(r.answered(node(2), holding("a", "b")), verdict::yes);
    EXPECT_EQ(r.holds(), 1U);
    EXPECT_FALSE(r.closed());
    node_reply closed = holding("a", "b");
    closed.text += std::string(32, 'a');
    r.answered(node(3), closed);
    EXPECT_TRUE(r.closed());
}

TEST(majority_round, takes_an_answer_that_another_try_brings_after_silence) {
    majority_round r(3);
    r.answered(node(0), answer(reply_status::unreachable));
    r.answered(node(1), answer(reply_status::broken));
    EXPECT_EQ(r.answered(node(0), answer(reply_status::ok)), verdict::pending);
    EXPECT_EQ(r.answered(node(0), answer(reply_status::lost)), verdict::pending) << "it has answered";
    EXPECT_EQ(r.yes(), 1U);
    EXPECT_EQ(r.answered(node(2), answer(reply_status::ok)), verdict::yes);
}

// CLOSE, five nodes, each of: closed, other holds left, no lease, silent.
TEST(majority_round, agrees_with_a_dumb_twin_on_close_for_every_table_of_answers) {
    std::mt19937 shuffle(1);
    const std::array kinds{reply_status::ok, reply_status::kept, reply_status::lost, reply_status::timeout};
    for (unsigned table = 0; table < 1024; ++table) {
        std::array<std::size_t, 4> count{};
        for (std::size_t n = 0; n < 5; ++n)
            ++count[table >> (2 * n) & 3];
        const auto [closed, kept, lost, silent] = count;
        verdict expected = verdict::no_quorum;
        if (closed >= 3) {
            expected = verdict::yes;
        } else if (lost >= 3) {
            expected = verdict::lost;
        } else if (kept > 0 && closed + silent < 3) {
            expected = verdict::kept;
        } else if (kept == 0 && silent == 0) {
            expected = verdict::lost;
        }
        std::array<std::size_t, 5> arrival{0, 1, 2, 3, 4};
        std::shuffle(arrival.begin(), arrival.end(), shuffle);
        majority_round r(5);
        for (const std::size_t n : arrival)
            r.answered(node(n), answer(kinds[table >> (2 * n) & 3]));
        // Whichever comes first: with a majority of lost nodes none is closed, and none is kept.
        if (lost >= 3 && kept > 0 && r.outcome() == verdict::kept) continue;
        ASSERT_EQ(r.outcome(), expected) << "table " << table;
    }
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

}  // namespace
}  // namespace lockcore
