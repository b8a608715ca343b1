// RENEW, INSPECT and RELEASE over a majority.
#include "node_number.hpp"

#include <lockcore/config.hpp>
#include <proto/lease_record.hpp>
#include <proto/majority_round.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lockcore {
namespace {

using round_verdict = majority_round::verdict;
node_reply reply_to_round(reply_status s, std::uint64_t value = 0, milliseconds left = milliseconds{0}) {
    node_reply r;
    r.status = s;
    r.value = value;
    r.remaining = left;
    return r;
}

TEST(majority_round, majority_ok_is_yes_at_once) {
    majority_round r(5);
    EXPECT_EQ(r.answered(node(0), reply_to_round(reply_status::ok)), round_verdict::pending);
    EXPECT_EQ(r.answered(node(4), reply_to_round(reply_status::ok)), round_verdict::pending);
    EXPECT_EQ(r.answered(node(2), reply_to_round(reply_status::ok)), round_verdict::yes);
}

TEST(majority_round, majority_cannot_hold_it_is_lost_at_once) {
    majority_round r(5);
    r.answered(node(0), reply_to_round(reply_status::lost));
    r.answered(node(1), reply_to_round(reply_status::lost));
    EXPECT_EQ(r.answered(node(2), reply_to_round(reply_status::lost)), round_verdict::lost);
}

TEST(majority_round, too_few_answers_is_no_quorum) {
    majority_round r(5);
    for (std::size_t n = 0; n < 3; ++n)
        r.answered(node(n), reply_to_round(reply_status::timeout));
    r.answered(node(3), reply_to_round(reply_status::ok));
    EXPECT_EQ(r.answered(node(4), reply_to_round(reply_status::ok)), round_verdict::no_quorum)
        << "it may live on the silent ones";
}

TEST(majority_round, majority_holds_it_some_refuse_renewal_is_exhausted) {
    majority_round r(3);
    r.answered(node(0), reply_to_round(reply_status::exhausted));
    r.answered(node(1), reply_to_round(reply_status::lost));
    EXPECT_EQ(r.answered(node(2), reply_to_round(reply_status::exhausted)), round_verdict::exhausted);
}

TEST(majority_round, node_that_answers_twice_counts_once) {
    for (const auto status :
         {reply_status::ok, reply_status::lost, reply_status::exhausted, reply_status::other_holds}) {
        majority_round r(3);
        r.answered(node(0), reply_to_round(status));
        EXPECT_EQ(r.answered(node(0), reply_to_round(status)), round_verdict::pending) << static_cast<int>(status);
        EXPECT_EQ(r.answered(node(0), reply_to_round(reply_status::ok)), round_verdict::pending)
            << "the first answer counts";
        EXPECT_LE(r.yes(), 1U);
    }
}

TEST(majority_round, accepts_an_answer_after_its_timeout) {
    majority_round r(3);
    r.answered(node(0), reply_to_round(reply_status::timeout));
    r.answered(node(1), reply_to_round(reply_status::ok));
    EXPECT_EQ(r.answered(node(0), reply_to_round(reply_status::ok)), round_verdict::yes);
    EXPECT_EQ(r.yes(), 2U);
}

TEST(majority_round, remaining_is_how_long_a_majority_keeps_it) {
    majority_round r(5);
    r.answered(node(0), reply_to_round(reply_status::ok, 0, milliseconds{100}));
    r.answered(node(1), reply_to_round(reply_status::ok, 2, milliseconds{900}));
    r.answered(node(2), reply_to_round(reply_status::ok, 1, milliseconds{400}));
    EXPECT_EQ(r.remaining(), milliseconds{100});
}

TEST(majority_round, one_node_alone_raises_neither_renewals_nor_held_time) {
    majority_round r(5);
    for (std::size_t n = 0; n < 3; ++n) {
        node_reply reply =
            reply_to_round(reply_status::ok, std::array{std::uint32_t{4}, renewals_counted, std::uint32_t{6}}[n]);
        reply.held = std::array{milliseconds{10}, foreign_time_max, milliseconds{20}}[n];
        r.answered(node(n), reply);
    }
    EXPECT_EQ(r.value(), 6U);
    EXPECT_EQ(r.held(), milliseconds{20});
    majority_round single(1);
    single.answered(node(0), reply_to_round(reply_status::ok, 6));
    EXPECT_EQ(single.value(), 6U);
}

TEST(majority_round, agrees_with_simple_model_for_every_combination_of_answers) {
    std::mt19937 shuffle(1);
    const std::array kinds{reply_status::ok, reply_status::lost, reply_status::exhausted, reply_status::timeout};
    for (unsigned table = 0; table < 1024; ++table) {
        std::array<std::size_t, 4> count{};
        std::array<reply_status, 5> answers{};
        for (std::size_t n = 0; n < 5; ++n) {
            ++count[table >> (2 * n) & 3];
            answers[n] = kinds[table >> (2 * n) & 3];
        }
        round_verdict expected = round_verdict::no_quorum;
        if (count[0] >= 3) {
            expected = round_verdict::yes;
        } else if (count[0] + count[2] >= 3) {
            expected = round_verdict::exhausted;
        } else if (count[1] >= 3 || count[3] == 0) {  // otherwise the silent nodes may hold it
            expected = round_verdict::lost;
        }
        for (int order = 0; order < 12; ++order) {
            std::array<std::size_t, 5> arrival{0, 1, 2, 3, 4};
            std::shuffle(arrival.begin(), arrival.end(), shuffle);
            majority_round r(5);
            for (const std::size_t n : arrival)
                r.answered(node(n), reply_to_round(answers[n]));
            ASSERT_EQ(r.outcome(), expected) << "table " << table << " order " << order;
        }
    }
}

/// Returns hold ids, one for each letter a to f.
std::string ids(std::string_view letters) {
    std::string out;
    for (const char letter : letters)
        out += (out.empty() ? "" : ",") + std::string(hold_id::size, letter);
    return out;
}
node_reply holding(std::string_view live, std::string_view released = {}) {
    node_reply r = reply_to_round(reply_status::ok);
    r.text = ids(live) + '\n' + ids(released) + '\n';
    return r;
}

TEST(majority_round, hold_on_one_of_a_majority_counts) {
    majority_round r(5);
    r.answered(node(0), holding("ab"));
    r.answered(node(1), holding("ac"));
    EXPECT_EQ(r.answered(node(2), holding("a")), round_verdict::yes);
    EXPECT_EQ(r.holds(), 3U);
}

TEST(majority_round, hold_released_on_one_of_a_majority_does_not_count) {
    majority_round r(5);
    r.answered(node(0), holding("ab"));
    r.answered(node(1), holding("ab"));
    EXPECT_EQ(r.answered(node(2), holding("a", "b")), round_verdict::yes);
    EXPECT_EQ(r.holds(), 1U);
    EXPECT_EQ(r.close_marks(), "");
    node_reply closed = holding("a", "b");
    closed.text += std::string(32, 'a');
    r.answered(node(3), closed);
    EXPECT_EQ(r.close_marks(), std::string(32, 'a'));
}

TEST(majority_round, accepts_an_answer_of_a_retry_after_silence) {
    majority_round r(3);
    r.answered(node(0), reply_to_round(reply_status::unreachable));
    r.answered(node(1), reply_to_round(reply_status::broken));
    EXPECT_EQ(r.answered(node(0), reply_to_round(reply_status::ok)), round_verdict::pending);
    EXPECT_EQ(r.answered(node(0), reply_to_round(reply_status::lost)), round_verdict::pending) << "it has answered";
    EXPECT_EQ(r.yes(), 1U);
    EXPECT_EQ(r.answered(node(2), reply_to_round(reply_status::ok)), round_verdict::yes);
}

TEST(majority_round, no_majority_without_other_holds_is_kept_at_once) {
    majority_round r(5);
    node_reply kept = holding("ab");
    kept.status = reply_status::other_holds;
    r.answered(node(0), kept);
    r.answered(node(1), reply_to_round(reply_status::lost));
    EXPECT_EQ(r.answered(node(2), reply_to_round(reply_status::lost)), round_verdict::other_holds);
    EXPECT_EQ(r.holds(), 2U);
    EXPECT_EQ(r.answered(node(3), reply_to_round(reply_status::lost)), round_verdict::other_holds)
        << "the verdict stays";
}

// CLOSE, five nodes, each of: closed, other holds left, no lease, silent.
TEST(majority_round, agrees_with_simple_model_on_close) {
    std::mt19937 shuffle(1);
    const std::array kinds{reply_status::ok, reply_status::other_holds, reply_status::lost, reply_status::timeout};
    for (unsigned table = 0; table < 1024; ++table) {
        std::array<std::size_t, 4> count{};
        for (std::size_t n = 0; n < 5; ++n)
            ++count[table >> (2 * n) & 3];
        const auto [closed, kept, lost, silent] = count;
        round_verdict expected = round_verdict::no_quorum;
        if (closed >= 3) {
            expected = round_verdict::yes;
        } else if (lost >= 3) {
            expected = round_verdict::lost;
        } else if (kept > 0 && closed + silent < 3) {
            expected = round_verdict::other_holds;
        } else if (kept == 0 && silent == 0) {
            expected = round_verdict::lost;
        }
        std::array<std::size_t, 5> arrival{0, 1, 2, 3, 4};
        std::shuffle(arrival.begin(), arrival.end(), shuffle);
        majority_round r(5);
        for (const std::size_t n : arrival)
            r.answered(node(n), reply_to_round(kinds[table >> (2 * n) & 3]));
        // With a majority of lost nodes the verdict depends on the order: lost or kept.
        if (lost >= 3 && kept > 0 && r.outcome() == round_verdict::other_holds) continue;
        ASSERT_EQ(r.outcome(), expected) << "table " << table;
    }
}

node_reply uncounted(std::uint64_t stamp) {
    node_reply r = reply_to_round(reply_status::lost, stamp);
    r.has_stamp = true;
    return r;
}

TEST(majority_round, majority_has_it_without_counting_it_is_uncounted) {
    majority_round r(5);
    r.answered(node(0), reply_to_round(reply_status::ok));
    r.answered(node(1), uncounted(7));
    r.answered(node(2), uncounted(9));
    EXPECT_EQ(r.outcome(), round_verdict::pending) << "three nodes may still say yes";
    EXPECT_EQ(r.answered(node(3), reply_to_round(reply_status::lost)), round_verdict::uncounted);
    EXPECT_EQ(r.uncounted_stamp(node(0)), std::nullopt);
    EXPECT_EQ(r.uncounted_stamp(node(1)), 7U);
    EXPECT_EQ(r.uncounted_stamp(node(2)), 9U);
    EXPECT_EQ(r.uncounted_stamp(node(3)), std::nullopt);
}

// RENEW, five nodes, each of: counts, does not count, no lease, silent.
TEST(majority_round, agrees_with_simple_model_on_uncounted_leases) {
    std::mt19937 shuffle(1);
    for (unsigned table = 0; table < 1024; ++table) {
        std::array<std::size_t, 4> count{};
        for (std::size_t n = 0; n < 5; ++n)
            ++count[table >> (2 * n) & 3];
        const auto [counted, stamped, lost, silent] = count;
        round_verdict expected = round_verdict::no_quorum;
        if (counted >= 3) {
            expected = round_verdict::yes;
        } else if (counted + stamped >= 3) {
            expected = round_verdict::uncounted;
        } else if (lost >= 3 || silent == 0) {
            expected = round_verdict::lost;
        }
        const std::array replies{reply_to_round(reply_status::ok), uncounted(7), reply_to_round(reply_status::lost),
                                 reply_to_round(reply_status::timeout)};
        std::array<std::size_t, 5> arrival{0, 1, 2, 3, 4};
        std::shuffle(arrival.begin(), arrival.end(), shuffle);
        majority_round r(5);
        for (const std::size_t n : arrival)
            r.answered(node(n), replies[table >> (2 * n) & 3]);
        ASSERT_EQ(r.outcome(), expected) << "table " << table;
    }
}

TEST(majority_round, keeps_the_largest_count_that_one_node_reported) {
    majority_round r(3);
    const auto notifying = [](std::uint32_t n) {
        node_reply reply = reply_to_round(reply_status::ok);
        reply.notified_waiters = n;
        return reply;
    };
    EXPECT_EQ(r.notified_waiters(), 0U);
    r.answered(node(0), notifying(2));
    r.answered(node(1), notifying(5));
    r.answered(node(2), notifying(1));
    EXPECT_EQ(r.notified_waiters(), 5U);
}

}  // namespace
}  // namespace lockcore
