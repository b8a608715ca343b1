// What stands on the nodes for one resource.
#include <proto/survey.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

namespace lockcore {
namespace {

using verdict = survey::verdict;
using namespace std::chrono_literals;

constexpr node_index node(std::size_t n) {
    return static_cast<node_index>(n);
}
node_reply tells_of(char who, unsigned token = 7, milliseconds left = 900ms) {
    node_reply r;
    r.status = reply_status::ok;
    r.remaining = left;
    r.text = std::string(32, who) + ' ' + std::to_string(token) + " 0 1000 0 5 -\np\n" + who + "\n\n\n\n";
    return r;
}
node_reply other(reply_status s) {
    node_reply r;
    r.status = s;
    return r;
}

TEST(survey, finds_the_lease_when_a_majority_tells_of_it) {
    survey s(5);
    EXPECT_EQ(s.answered(node(4), tells_of('a')), verdict::pending);
    EXPECT_EQ(s.answered(node(0), other(reply_status::lost)), verdict::pending);
    EXPECT_EQ(s.answered(node(1), tells_of('a')), verdict::pending);
    EXPECT_EQ(s.answered(node(2), tells_of('a')), verdict::found);
    ASSERT_TRUE(s.lease());
    EXPECT_EQ(s.lease()->by.owner, "a");
    EXPECT_EQ(s.nodes_holding(), 3U);
}

TEST(survey, takes_two_leases_of_one_attempt_under_different_tokens_for_two) {
    survey s(3);
    s.answered(node(0), tells_of('a', 7));
    s.answered(node(1), tells_of('a', 8));
    EXPECT_EQ(s.answered(node(2), other(reply_status::lost)), verdict::none);
}

TEST(survey, says_none_at_once_when_no_majority_can_hold_a_lease_any_more) {
    survey s(5);
    for (std::size_t n = 0; n < 2; ++n)
        EXPECT_EQ(s.answered(node(n), other(reply_status::lost)), verdict::pending);
    EXPECT_EQ(s.answered(node(2), other(reply_status::lost)), verdict::none);
    EXPECT_FALSE(s.lease());
}

TEST(survey, says_no_quorum_when_too_few_answer) {
    survey s(5);
    s.answered(node(0), tells_of('a'));
    s.answered(node(1), tells_of('a'));
    s.answered(node(2), other(reply_status::timeout));
    s.answered(node(3), other(reply_status::not_admitted));
    EXPECT_EQ(s.answered(node(4), other(reply_status::broken)), verdict::no_quorum);
}

node_reply no_lease() {
    node_reply r = tells_of('a');
    r.text = "?";
    return r;
}

TEST(survey, takes_a_text_that_is_no_lease_for_an_answer_without_one) {
    survey s(5);
    s.answered(node(0), no_lease());
    s.answered(node(1), other(reply_status::lost));
    s.answered(node(2), other(reply_status::lost));
    EXPECT_EQ(s.answered(node(3), other(reply_status::lost)), verdict::none);
}

TEST(survey, says_occupied_when_a_majority_has_what_is_no_lease_and_counts_all_that_answer) {
    survey s(5);
    for (std::size_t n = 0; n < 4; ++n)
        EXPECT_EQ(s.answered(node(n), no_lease()), verdict::pending);
    EXPECT_EQ(s.answered(node(4), other(reply_status::timeout)), verdict::occupied);
    EXPECT_EQ(s.occupied().count(), 4U);
}

TEST(survey, says_none_when_what_is_no_lease_leaves_a_majority_free) {
    survey s(5);
    s.answered(node(0), no_lease());
    s.answered(node(1), no_lease());
    s.answered(node(2), other(reply_status::lost));
    s.answered(node(3), other(reply_status::lost));
    EXPECT_EQ(s.answered(node(4), other(reply_status::timeout)), verdict::none);
    EXPECT_EQ(s.occupied().count(), 2U);
}

TEST(survey, hears_each_node_once) {
    survey s(5);
    for (int i = 0; i < 5; ++i)
        EXPECT_EQ(s.answered(node(0), tells_of('a')), verdict::pending);
    EXPECT_EQ(s.nodes_holding(), 1U);
}

TEST(survey, tells_how_long_a_majority_keeps_the_lease) {
    survey s(5);
    s.answered(node(0), tells_of('a', 7, 100ms));
    s.answered(node(1), tells_of('a', 7, 900ms));
    s.answered(node(2), tells_of('a', 7, 400ms));
    EXPECT_EQ(s.remaining(), 100ms);
    survey three(3);
    three.answered(node(0), tells_of('a', 7, 100ms));
    three.answered(node(1), tells_of('a', 7, -1ms));
    EXPECT_LT(three.remaining(), 0ms) << "a node keeps it for ever";
}

/// Five nodes, each of: lease x, lease y, none, silent.
using table = std::array<unsigned, 5>;
enum : unsigned { says_x, says_y, says_none, is_silent };

/// Counts, and nothing else.
verdict dumb_twin(const table& t) {
    std::array<std::size_t, 4> count{};
    for (const unsigned said : t)
        ++count[said];
    const std::size_t most = std::max(count[says_x], count[says_y]);
    if (most >= 3) return verdict::found;
    return most + count[is_silent] >= 3 ? verdict::no_quorum : verdict::none;
}

// Silent nodes may make up the majority, as of a renewal that is not known to be lost (L11): two nodes tell of the
// lease, two are silent; "none" would be wrong.
TEST(survey, agrees_with_a_dumb_twin_for_every_table_of_answers) {
    std::mt19937 shuffle(1);
    for (unsigned number = 0; number < 1024; ++number) {
        table said{};
        for (std::size_t n = 0; n < 5; ++n)
            said[n] = number >> (2 * n) & 3;
        const verdict expected = dumb_twin(said);
        for (int order = 0; order < 12; ++order) {
            std::array<std::size_t, 5> arrival{0, 1, 2, 3, 4};
            std::shuffle(arrival.begin(), arrival.end(), shuffle);
            survey s(5);
            for (const std::size_t n : arrival) {
                s.answered(node(n), said[n] == says_x      ? tells_of('a', 7)
                                    : said[n] == says_y    ? tells_of('b', 8)
                                    : said[n] == says_none ? other(reply_status::lost)
                                                           : other(reply_status::timeout));
            }
            ASSERT_EQ(s.outcome(), expected) << "table " << number << " order " << order;
            if (expected == verdict::found) {
                const bool x = std::count(said.begin(), said.end(), says_x) >= 3;
                ASSERT_EQ(s.lease()->by.owner, x ? "a" : "b");
                ASSERT_EQ(s.nodes_holding(), 3U) << "what comes after the verdict is not counted";
            }
        }
    }
}

}  // namespace
}  // namespace lockcore
