// The survey of what the nodes have for one resource.
#include "node_number.hpp"

#include <proto/majority_round.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

namespace lockcore {
namespace {

using survey_verdict = survey::verdict;
using namespace std::chrono_literals;

node_reply reply_with_lease(char owner, unsigned token = 7, milliseconds left = 900ms) {
    node_reply r;
    r.status = reply_status::ok;
    r.remaining = left;
    r.text = std::string(32, owner) + ' ' + std::to_string(token) + " 0 1000 0 5 -\np\n" + owner + "\n\n\n\n";
    return r;
}
node_reply other(reply_status s) {
    node_reply r;
    r.status = s;
    return r;
}

TEST(survey, lease_on_a_majority_is_found) {
    survey s(5);
    EXPECT_EQ(s.answered(node(4), reply_with_lease('a')), survey_verdict::pending);
    EXPECT_EQ(s.answered(node(0), other(reply_status::lost)), survey_verdict::pending);
    EXPECT_EQ(s.answered(node(1), reply_with_lease('a')), survey_verdict::pending);
    EXPECT_EQ(s.answered(node(2), reply_with_lease('a')), survey_verdict::found);
    ASSERT_TRUE(s.lease());
    EXPECT_EQ(s.lease()->holder.owner, "a");
    EXPECT_EQ(s.nodes_holding(), 3U);
}

TEST(survey, one_attempt_with_two_tokens_is_two_leases) {
    survey s(3);
    s.answered(node(0), reply_with_lease('a', 7));
    s.answered(node(1), reply_with_lease('a', 8));
    EXPECT_EQ(s.answered(node(2), other(reply_status::lost)), survey_verdict::none);
}

TEST(survey, nonce_and_token_with_another_holder_are_another_lease) {
    survey s(5);
    node_reply forged = reply_with_lease('a');
    forged.text.replace(forged.text.find("\np\n"), 3, "\nthief\n");
    s.answered(node(0), forged);
    s.answered(node(1), reply_with_lease('a'));
    EXPECT_EQ(s.answered(node(2), reply_with_lease('a')), survey_verdict::pending) << "two nodes are no majority";
    EXPECT_EQ(s.answered(node(3), reply_with_lease('a')), survey_verdict::found);
    EXPECT_EQ(s.lease()->holder.principal, "p");
}

node_reply reply_with_holders(std::initializer_list<char> holders) {
    node_reply r = other(reply_status::ok);
    r.text = "shared";
    for (const char holder : holders)
        r.text += ' ' + std::string(32, holder);
    return r;
}
std::vector<nonce> nonces(std::initializer_list<char> holders) {
    std::vector<nonce> out;
    for (const char holder : holders)
        out.push_back(*nonce::parse(std::string(32, holder)));
    return out;
}

TEST(survey, those_that_share_are_named_by_a_majority) {
    survey s(5);
    s.answered(node(0), reply_with_holders({'b', 'a'}));
    s.answered(node(1), reply_with_holders({'a', 'b', 'c'}));
    s.answered(node(2), reply_with_holders({'c', 'b', 'd', 'd', 'd'}));
    EXPECT_EQ(s.answered(node(3), other(reply_status::lost)), survey_verdict::pending) << "the last may name more";
    EXPECT_EQ(s.answered(node(4), reply_with_holders({'a'})), survey_verdict::shared);
    EXPECT_EQ(s.sharing(), nonces({'a', 'b'})) << "a node counts once";
}

TEST(survey, node_without_an_answer_may_have_those_that_share) {
    survey s(5);
    s.answered(node(0), reply_with_holders({'a', 'b'}));
    s.answered(node(1), reply_with_holders({'a'}));
    s.answered(node(2), other(reply_status::lost));
    s.answered(node(3), other(reply_status::lost));
    EXPECT_EQ(s.answered(node(4), other(reply_status::timeout)), survey_verdict::shared);
    EXPECT_EQ(s.sharing(), nonces({'a'}));
}

TEST(survey, those_that_share_on_a_minority_are_none) {
    survey s(3);
    s.answered(node(0), reply_with_holders({'a'}));
    s.answered(node(1), reply_with_holders({'b'}));
    EXPECT_EQ(s.answered(node(2), reply_with_holders({'c'})), survey_verdict::none);
    survey silent(3);
    silent.answered(node(0), reply_with_holders({'a'}));
    silent.answered(node(1), other(reply_status::timeout));
    EXPECT_EQ(silent.answered(node(2), other(reply_status::timeout)), survey_verdict::no_quorum);
}

TEST(survey, leases_are_reported_in_the_order_of_their_nodes_number) {
    survey s(5);
    s.answered(node(0), reply_with_lease('a'));
    s.answered(node(1), reply_with_lease('b'));
    s.answered(node(2), reply_with_lease('b'));
    const auto reported = s.reported_leases();
    ASSERT_EQ(reported.size(), 2U);
    EXPECT_EQ(reported[0].holder.owner, "b");
    EXPECT_EQ(reported[1].holder.owner, "a");
}

TEST(survey, two_attempts_with_one_token_are_two_leases) {
    survey s(3);
    s.answered(node(0), reply_with_lease('a', 7));
    s.answered(node(1), reply_with_lease('b', 7));
    EXPECT_EQ(s.answered(node(2), other(reply_status::lost)), survey_verdict::none);
}

TEST(survey, no_possible_majority_is_none_at_once) {
    survey s(5);
    for (std::size_t n = 0; n < 2; ++n)
        EXPECT_EQ(s.answered(node(n), other(reply_status::lost)), survey_verdict::pending);
    EXPECT_EQ(s.answered(node(2), other(reply_status::lost)), survey_verdict::none);
    EXPECT_FALSE(s.lease());
    EXPECT_EQ(s.remaining(), milliseconds{0});
}

TEST(survey, too_few_answers_is_no_quorum) {
    survey s(5);
    s.answered(node(0), reply_with_lease('a'));
    s.answered(node(1), reply_with_lease('a'));
    s.answered(node(2), other(reply_status::timeout));
    s.answered(node(3), other(reply_status::not_admitted));
    EXPECT_EQ(s.answered(node(4), other(reply_status::broken)), survey_verdict::no_quorum);
}

node_reply no_lease() {
    node_reply r = reply_with_lease('a');
    r.text = "?";
    return r;
}

TEST(survey, text_that_is_no_lease_counts_as_an_answer_without_one) {
    survey s(5);
    s.answered(node(0), no_lease());
    s.answered(node(1), other(reply_status::lost));
    s.answered(node(2), other(reply_status::lost));
    EXPECT_EQ(s.answered(node(3), other(reply_status::lost)), survey_verdict::none);
}

TEST(survey, value_that_is_no_lease_on_a_majority_is_occupied) {
    survey s(5);
    for (std::size_t n = 0; n < 4; ++n)
        EXPECT_EQ(s.answered(node(n), no_lease()), survey_verdict::pending);
    EXPECT_EQ(s.answered(node(4), other(reply_status::timeout)), survey_verdict::occupied);
    EXPECT_EQ(s.occupied().count(), 4U);
}

TEST(survey, value_that_is_no_lease_on_a_minority_is_none) {
    survey s(5);
    s.answered(node(0), no_lease());
    s.answered(node(1), no_lease());
    s.answered(node(2), other(reply_status::lost));
    s.answered(node(3), other(reply_status::lost));
    EXPECT_EQ(s.answered(node(4), other(reply_status::timeout)), survey_verdict::none);
    EXPECT_EQ(s.occupied().count(), 2U);
}

TEST(survey, each_node_counts_once) {
    survey s(5);
    for (int i = 0; i < 5; ++i)
        EXPECT_EQ(s.answered(node(0), reply_with_lease('a')), survey_verdict::pending);
    EXPECT_EQ(s.nodes_holding(), 1U);
}

TEST(survey, remaining_is_how_long_a_majority_keeps_the_lease) {
    survey s(5);
    s.answered(node(0), reply_with_lease('a', 7, 100ms));
    s.answered(node(1), reply_with_lease('a', 7, 900ms));
    s.answered(node(2), reply_with_lease('a', 7, 400ms));
    EXPECT_EQ(s.remaining(), 100ms);
    survey three(3);
    three.answered(node(0), reply_with_lease('a', 7, 100ms));
    three.answered(node(1), reply_with_lease('a', 7, -1ms));
    EXPECT_LT(three.remaining(), 0ms) << "a node keeps it for ever";
}

/// Five nodes, each of: lease x, lease y, none, silent.
using table = std::array<unsigned, 5>;
enum : unsigned { says_x, says_y, says_none, is_silent };

/// Computes the expected survey_verdict by counting alone.
survey_verdict expected_verdict(const table& t) {
    std::array<std::size_t, 4> count{};
    for (const unsigned answer : t)
        ++count[answer];
    const std::size_t most = std::max(count[says_x], count[says_y]);
    if (most >= 3) return survey_verdict::found;
    return most + count[is_silent] >= 3 ? survey_verdict::no_quorum : survey_verdict::none;
}

// Silent nodes may complete the majority, as for a renewal that is not known to be lost (L11): if two nodes have the
// lease and two are silent, "none" would be wrong.
TEST(survey, agrees_with_simple_model_for_every_combination_of_answers) {
    std::mt19937 shuffle(1);
    for (unsigned number = 0; number < 1024; ++number) {
        table answers{};
        for (std::size_t n = 0; n < 5; ++n)
            answers[n] = number >> (2 * n) & 3;
        const survey_verdict expected = expected_verdict(answers);
        for (int order = 0; order < 12; ++order) {
            std::array<std::size_t, 5> arrival{0, 1, 2, 3, 4};
            std::shuffle(arrival.begin(), arrival.end(), shuffle);
            survey s(5);
            for (const std::size_t n : arrival) {
                s.answered(node(n), answers[n] == says_x      ? reply_with_lease('a', 7)
                                    : answers[n] == says_y    ? reply_with_lease('b', 8)
                                    : answers[n] == says_none ? other(reply_status::lost)
                                                              : other(reply_status::timeout));
            }
            ASSERT_EQ(s.outcome(), expected) << "table " << number << " order " << order;
            if (expected == survey_verdict::found) {
                const bool x = std::count(answers.begin(), answers.end(), says_x) >= 3;
                ASSERT_EQ(s.lease()->holder.owner, x ? "a" : "b");
                ASSERT_EQ(s.nodes_holding(), 3U) << "what comes after the verdict is not counted";
            }
        }
    }
}

}  // namespace
}  // namespace lockcore
