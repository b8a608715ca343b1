// The acquire machine (docs/protocol.md R1–R5), tested by scripts and by enumeration against a second, deliberately
// simple implementation.
#include <proto/acquire_machine.hpp>

#include "acquire_answers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lockcore {
namespace {

using verdict = acquire_machine::verdict;

TEST(acquire, asks_every_node_at_once_when_started) {
    acquire_machine a(5);
    const auto s = a.start();
    EXPECT_EQ(nodes_of(s), "01234");
    EXPECT_EQ(s.kind, command_kind::acquire);
}

TEST(acquire, majority_replies_same_counter_granted_after_one_round) {
    acquire_machine a(5);
    a.start();
    EXPECT_FALSE(a.acquire_answered(node(3), ok(8)).targets.any());
    EXPECT_FALSE(a.acquire_answered(node(0), ok(8)).targets.any());
    EXPECT_EQ(a.outcome(), verdict::pending);
    EXPECT_FALSE(a.acquire_answered(node(4), ok(8)).targets.any());
    EXPECT_EQ(a.outcome(), verdict::granted);
    EXPECT_EQ(a.token(), fencing_token{8});
    a.acquire_answered(node(1), ok(8));
    EXPECT_EQ(a.stamps(), 4U) << "a later answer of exactly the token is a stamp too";
}

TEST(acquire, confirms_highest_counter_on_nodes_that_replied_less) {
    acquire_machine a(5);
    a.start();
    a.acquire_answered(node(0), ok(1));
    a.acquire_answered(node(1), ok(2));
    const auto s = a.acquire_answered(node(2), ok(2));
    EXPECT_EQ(s.kind, command_kind::confirm);
    EXPECT_EQ(s.token, fencing_token{2});
    EXPECT_EQ(nodes_of(s), "0");
    EXPECT_EQ(a.outcome(), verdict::pending) << "two stamps of five are no majority";
    a.confirm_answered(node(0), s.token, ok(2));
    EXPECT_EQ(a.outcome(), verdict::granted);
    EXPECT_EQ(a.token(), fencing_token{2});
}

TEST(acquire, late_reply_of_exactly_the_token_is_a_stamp) {
    acquire_machine a(5);
    a.start();
    a.acquire_answered(node(0), ok(1));
    a.acquire_answered(node(1), ok(2));
    a.acquire_answered(node(2), ok(2));
    a.acquire_answered(node(3), ok(2));
    EXPECT_EQ(a.outcome(), verdict::granted);
    EXPECT_EQ(a.stamps(), 3U);
}

TEST(acquire, confirms_token_on_late_node_and_never_raises_it) {
    acquire_machine a(5);
    a.start();
    for (std::size_t n = 0; n < 3; ++n)
        a.acquire_answered(node(n), ok(7));
    ASSERT_EQ(a.outcome(), verdict::granted);
    const auto s = a.acquire_answered(node(3), ok(4));
    EXPECT_EQ(s.kind, command_kind::confirm);
    EXPECT_EQ(s.token, fencing_token{7});
    EXPECT_EQ(nodes_of(s), "3");
    a.confirm_answered(node(3), fencing_token{7}, ok(7));
    EXPECT_EQ(a.stamps(), 4U);
    EXPECT_FALSE(a.acquire_answered(node(4), ok(9)).targets.any());
    EXPECT_EQ(a.token(), fencing_token{7});
}

TEST(acquire, late_reply_above_the_token_is_no_stamp) {
    acquire_machine a(5);
    a.start();
    a.acquire_answered(node(0), ok(1));
    a.acquire_answered(node(1), ok(2));
    a.acquire_answered(node(2), ok(2));
    a.acquire_answered(node(3), ok(9));
    EXPECT_EQ(a.outcome(), verdict::pending);
    EXPECT_EQ(a.token(), fencing_token{2});
    a.confirm_answered(node(0), fencing_token{2}, ok(2));
    EXPECT_EQ(a.outcome(), verdict::granted);
    EXPECT_EQ(a.token(), fencing_token{2});
}

TEST(acquire, node_above_the_token_drops_all_stamps_and_confirms_again) {
    acquire_machine a(3);
    a.start();
    a.acquire_answered(node(0), ok(1));
    auto s = a.acquire_answered(node(1), ok(2));
    EXPECT_EQ(nodes_of(s), "0");
    s = a.confirm_answered(node(0), fencing_token{2}, stale(5));
    EXPECT_EQ(s.token, fencing_token{5});
    EXPECT_EQ(nodes_of(s), "01") << "the node that was stamped with 2, and the one that reported 5";
    EXPECT_EQ(a.stamps(), 0U) << "a stale answer is no stamp";
    a.confirm_answered(node(1), fencing_token{5}, ok(5));
    EXPECT_EQ(a.outcome(), verdict::pending);
    a.confirm_answered(node(0), fencing_token{5}, ok(5));
    EXPECT_EQ(a.outcome(), verdict::granted);
    EXPECT_EQ(a.token(), fencing_token{5});
}

TEST(acquire, ignores_confirmation_of_an_older_token) {
    acquire_machine a(5);
    a.start();
    a.acquire_answered(node(0), ok(1));
    a.acquire_answered(node(1), ok(1));
    a.acquire_answered(node(2), ok(3));
    a.confirm_answered(node(0), fencing_token{3}, stale(6));
    a.confirm_answered(node(1), fencing_token{3}, ok(3));
    EXPECT_EQ(a.stamps(), 0U);
    EXPECT_EQ(a.token(), fencing_token{6});
}

TEST(acquire, raises_the_token_when_other_nodes_no_longer_suffice) {
    acquire_machine a(3);
    a.start();
    a.acquire_answered(node(0), ok(1));
    a.acquire_answered(node(1), ok(2));
    a.acquire_answered(node(2), ok(4));
    const auto s = a.confirm_answered(node(0), fencing_token{2}, status_reply(reply_status::broken));
    EXPECT_EQ(s.token, fencing_token{4});
    EXPECT_EQ(nodes_of(s), "12");
    EXPECT_EQ(a.stamps(), 0U);
    a.confirm_answered(node(1), fencing_token{4}, ok(4));
    EXPECT_EQ(a.outcome(), verdict::pending);
    a.confirm_answered(node(2), fencing_token{4}, ok(4));
    EXPECT_EQ(a.outcome(), verdict::granted);
}

TEST(acquire, gives_up_when_the_token_is_raised_too_often) {
    acquire_machine a(3);
    a.start();
    a.acquire_answered(node(0), ok(1));
    a.acquire_answered(node(1), ok(2));
    std::uint64_t t = 2;
    for (unsigned i = 0; i <= acquire_machine::raises_max && a.outcome() == verdict::pending; ++i, ++t) {
        a.confirm_answered(node(0), fencing_token{t}, stale(t + 1));
    }
    EXPECT_EQ(a.outcome(), verdict::no_quorum);
    EXPECT_EQ(a.token(), fencing_token{2 + acquire_machine::raises_max});
    EXPECT_EQ(a.undo_targets(), node_set{0b111}) << "taken on two nodes, and perhaps on the third";
}

TEST(acquire, too_few_nodes_are_left_no_quorum_at_once) {
    acquire_machine a(5);
    a.start();
    a.acquire_answered(node(0), status_reply(reply_status::unreachable));
    a.acquire_answered(node(1), status_reply(reply_status::not_admitted));
    a.acquire_answered(node(2), ok(3));
    EXPECT_EQ(a.outcome(), verdict::pending);
    a.acquire_answered(node(3), status_reply(reply_status::timeout));
    EXPECT_EQ(a.outcome(), verdict::no_quorum);
}

TEST(acquire, lease_lost_before_confirmation_is_no_stamp) {
    acquire_machine a(3);
    a.start();
    a.acquire_answered(node(0), ok(1));
    a.acquire_answered(node(1), ok(2));
    a.confirm_answered(node(0), fencing_token{2}, status_reply(reply_status::lost));
    EXPECT_EQ(a.outcome(), verdict::pending);
    a.acquire_answered(node(2), held());
    EXPECT_EQ(a.outcome(), verdict::locked);
}

TEST(acquire, accepts_an_answer_after_its_timeout) {
    acquire_machine a(3);
    a.start();
    a.acquire_answered(node(0), status_reply(reply_status::timeout));
    a.acquire_answered(node(1), ok(4));
    EXPECT_EQ(a.outcome(), verdict::pending);
    a.acquire_answered(node(0), ok(4));
    EXPECT_EQ(a.outcome(), verdict::granted);
}

TEST(acquire, undoes_on_every_node_that_may_have_it_and_on_no_other) {
    acquire_machine a(5);
    a.start();
    a.acquire_answered(node(0), ok(1));
    a.acquire_answered(node(1), held());
    a.acquire_answered(node(2), status_reply(reply_status::timeout));
    a.acquire_answered(node(3), status_reply(reply_status::unreachable));
    EXPECT_EQ(a.undo_targets().to_ulong(), 0b10101UL) << "taken, unknown, and not answered yet";
}

TEST(acquire, locked_reports_when_enough_nodes_will_be_free) {
    acquire_machine a(5);
    a.start();
    a.acquire_answered(node(0), ok(1));
    a.acquire_answered(node(1), held(milliseconds{900}));
    a.acquire_answered(node(2), held(milliseconds{300}));
    a.acquire_answered(node(3), held(milliseconds{100}));
    EXPECT_EQ(a.outcome(), verdict::locked);
    EXPECT_EQ(a.remaining(), milliseconds{300}) << "one is free, two more are needed";
}

TEST(acquire, keeps_the_highest_observed_counter_also_of_the_holder) {
    acquire_machine a(3);
    a.start();
    a.acquire_answered(node(0), ok(5));
    a.acquire_answered(node(1), answer(reply_status::held, 12, milliseconds{10}));
    EXPECT_EQ(a.highest_observed_token(), fencing_token{12});
}

// Five nodes, four answers each, in many orders: 1,024 combinations against the simplest possible rule.
TEST(acquire, agrees_with_simple_model_for_every_combination_of_answers) {
    enum said { agrees, behind, is_held, silent };
    std::mt19937 shuffle(1);
    for (unsigned table = 0; table < 1024; ++table) {
        std::array<said, 5> answers{};
        for (std::size_t n = 0; n < 5; ++n)
            answers[n] = static_cast<said>(table >> (2 * n) & 3);
        const auto taken =
            std::count_if(answers.begin(), answers.end(), [](said x) { return x == agrees || x == behind; });
        const auto silents = std::count(answers.begin(), answers.end(), silent);
        const verdict expected = taken >= 3         ? verdict::granted
                                 : 5 - silents >= 3 ? verdict::locked
                                                    : verdict::no_quorum;

        for (int order = 0; order < 12; ++order) {
            std::array<std::size_t, 5> arrival{0, 1, 2, 3, 4};
            std::shuffle(arrival.begin(), arrival.end(), shuffle);
            acquire_machine a(5);
            a.start();
            node_set asked;
            const auto feed_confirms = [&](acquire_machine::step s) {
                while (s.targets.any()) {
                    ASSERT_EQ(s.kind, command_kind::confirm);
                    acquire_machine::step next;
                    for (std::size_t n = 0; n < 5; ++n) {
                        if (s.targets[n]) next = a.confirm_answered(node(n), s.token, ok(value_of(s.token)));
                    }
                    s = next;
                }
            };
            for (const std::size_t n : arrival) {
                switch (answers[n]) {
                    case agrees:
                        feed_confirms(a.acquire_answered(node(n), ok(10)));
                        break;
                    case behind:
                        feed_confirms(a.acquire_answered(node(n), ok(9)));
                        break;
                    case is_held:
                        feed_confirms(a.acquire_answered(node(n), held()));
                        break;
                    case silent:
                        feed_confirms(a.acquire_answered(node(n), status_reply(reply_status::timeout)));
                        break;
                }
            }
            ASSERT_EQ(a.outcome(), expected) << "table " << table << " order " << order;
            if (expected == verdict::granted) {
                ASSERT_GE(a.stamps(), 3U);
                ASSERT_GE(a.token(), fencing_token{9});
            }
        }
    }
}

// --- re-entrant holders, and leases that are handed over

TEST(acquire, locked_by_own_lease_reports_it) {
    acquire_machine a(3);
    a.start();
    a.acquire_answered(node(0), own('a', 9, milliseconds{300}));
    EXPECT_EQ(a.outcome(), verdict::pending);
    a.acquire_answered(node(2), own('a', 9, milliseconds{400}));
    EXPECT_EQ(a.outcome(), verdict::locked);
    ASSERT_TRUE(a.own_lease());
    EXPECT_EQ(a.own_lease()->token, fencing_token{9});
    EXPECT_EQ(a.own_lease()->holder.owner, "me");
    EXPECT_EQ(a.remaining(), milliseconds{400}) << "until a majority is free";
    EXPECT_EQ(a.highest_observed_token(), fencing_token{9});
    EXPECT_EQ(a.undo_targets(), node_set{0b010}) << "the node that has not answered";
}

TEST(acquire, several_own_leases_reports_that_of_most_nodes) {
    acquire_machine a(5);
    a.start();
    a.acquire_answered(node(0), own('b', 12));
    a.acquire_answered(node(1), own('a', 9));
    a.acquire_answered(node(2), own('a', 9));
    ASSERT_EQ(a.outcome(), verdict::pending) << "two of five are no majority yet";
    EXPECT_FALSE(a.own_lease());
    a.acquire_answered(node(3), own('a', 9));
    ASSERT_EQ(a.outcome(), verdict::locked);
    EXPECT_EQ(a.own_lease()->attempt_id.str(), std::string(32, 'a')) << "not what an attempt that failed left behind";
}

TEST(acquire, all_nodes_held_by_another_no_own_lease) {
    acquire_machine a(3);
    a.start();
    a.acquire_answered(node(0), held());
    a.acquire_answered(node(1), held());
    ASSERT_EQ(a.outcome(), verdict::locked);
    EXPECT_FALSE(a.own_lease());
}

// own_lease() is empty if another holder has the lease. A remnant on one node does not lock the three other nodes.
TEST(acquire, most_nodes_held_by_another_no_own_lease) {
    acquire_machine a(5);
    a.start();
    a.acquire_answered(node(0), own('a', 9));
    for (std::size_t n = 1; n < 4; ++n)
        a.acquire_answered(node(n), held());
    ASSERT_EQ(a.outcome(), verdict::locked);
    EXPECT_FALSE(a.own_lease());
}

// One of the two is the holder's lease, the other a remnant of a late answer above the token: the third node decides.
TEST(acquire, waits_for_the_answer_that_decides_between_own_leases) {
    acquire_machine a(3);
    a.start();
    a.acquire_answered(node(0), own('a', 12));
    a.acquire_answered(node(1), own('a', 9));
    EXPECT_EQ(a.outcome(), verdict::pending);
    a.acquire_answered(node(2), own('a', 9));
    EXPECT_EQ(a.outcome(), verdict::locked);
    EXPECT_EQ(a.own_lease()->token, fencing_token{9});
}

TEST(acquire, silent_node_decides_about_own_lease_no_quorum) {
    acquire_machine a(5);
    a.start();
    a.acquire_answered(node(0), own('a', 12));
    a.acquire_answered(node(1), own('a', 12));
    a.acquire_answered(node(2), ok(13));
    a.acquire_answered(node(3), ok(13));
    EXPECT_EQ(a.outcome(), verdict::pending);
    a.acquire_answered(node(4), status_reply(reply_status::timeout));
    EXPECT_EQ(a.outcome(), verdict::no_quorum) << "not locked: whose lease is in the way is not known";
    EXPECT_FALSE(a.own_lease());
}

TEST(acquire, unreadable_own_lease_counts_as_held) {
    acquire_machine a(3);
    a.start();
    a.acquire_answered(node(0), answer(reply_status::own));
    a.acquire_answered(node(1), answer(reply_status::own));
    EXPECT_EQ(a.outcome(), verdict::locked);
    EXPECT_FALSE(a.own_lease());
}

TEST(acquire, minority_with_own_lease_still_granted) {
    acquire_machine a(5);
    a.start();
    a.acquire_answered(node(0), own('a', 9));
    a.acquire_answered(node(1), own('a', 9));
    for (std::size_t n = 2; n < 5; ++n)
        a.acquire_answered(node(n), ok(10));
    EXPECT_EQ(a.outcome(), verdict::granted);
}

TEST(acquire, hand_over_of_a_lease_with_holds_left_is_locked) {
    acquire_machine a(3);
    a.start();
    a.acquire_answered(node(0), ok(4));
    a.acquire_answered(node(1), status_reply(reply_status::other_holds));
    a.acquire_answered(node(2), status_reply(reply_status::other_holds));
    EXPECT_EQ(a.outcome(), verdict::locked);
    EXPECT_EQ(a.undo_targets(), node_set{0b001}) << "where it had missed the hold";
}

// Five nodes, each free, held by another, held by the same holder, or kept: only three free nodes grant.
TEST(acquire, agrees_with_simple_model_for_own_and_kept_leases) {
    std::mt19937 shuffle(2);
    for (unsigned table = 0; table < 1024; ++table) {
        std::array<unsigned, 5> said{};
        std::size_t free = 0, own_count = 0;
        node_set taken;
        for (std::size_t n = 0; n < 5; ++n) {
            said[n] = table >> (2 * n) & 3;
            if (said[n] == 0) {
                ++free;
                taken.set(n);
            }
            if (said[n] == 2) ++own_count;
        }
        for (int order = 0; order < 6; ++order) {
            std::array<std::size_t, 5> arrival{0, 1, 2, 3, 4};
            std::shuffle(arrival.begin(), arrival.end(), shuffle);
            acquire_machine a(5);
            a.start();
            for (const std::size_t n : arrival) {
                a.acquire_answered(node(n), said[n] == 0   ? ok(10)
                                            : said[n] == 1 ? held()
                                            : said[n] == 2 ? own('a', 9)
                                                           : status_reply(reply_status::other_holds));
            }
            ASSERT_EQ(a.outcome(), free >= 3 ? verdict::granted : verdict::locked) << "table " << table;
            ASSERT_EQ(a.own_lease().has_value(), own_count >= 3) << "table " << table;
            ASSERT_EQ(a.undo_targets(), taken) << "table " << table;
        }
    }
}

// Three nodes, one of them down: ACQUIRE to n0 (1), to n1 (2), CONFIRM(2) to n0. Each of the three fails in every way.
TEST(acquire, any_failed_step_is_never_granted) {
    for (unsigned step = 0; step < 3; ++step) {
        for (const reply_status failing :
             {reply_status::held, reply_status::lost, reply_status::stale, reply_status::overflow, reply_status::own,
              reply_status::other_holds, reply_status::not_admitted, reply_status::unreachable, reply_status::timeout,
              reply_status::broken, reply_status::error}) {
            if (step < 2 && (failing == reply_status::lost || failing == reply_status::stale)) continue;
            if (step == 2 && (failing == reply_status::held || failing == reply_status::own ||
                              failing == reply_status::other_holds || failing == reply_status::overflow))
                continue;
            acquire_machine a(3);
            a.start();
            a.acquire_answered(node(2), status_reply(reply_status::unreachable));
            a.acquire_answered(node(0), step == 0 ? status_reply(failing) : ok(1));
            const auto s = a.acquire_answered(node(1), step == 1 ? status_reply(failing) : ok(2));
            if (step == 2) {
                ASSERT_EQ(nodes_of(s), "0");
                a.confirm_answered(node(0), s.token, failing == reply_status::stale ? stale(5) : status_reply(failing));
            }
            EXPECT_NE(a.outcome(), verdict::granted) << step << ' ' << to_string(failing);
            if (failing == reply_status::stale) {
                EXPECT_EQ(a.outcome(), verdict::pending) << "5 may still be confirmed";
                continue;
            }
            EXPECT_NE(a.outcome(), verdict::pending) << step << ' ' << to_string(failing);
            const node_set undo = a.undo_targets();
            if (step != 0) {
                EXPECT_EQ(undo[0], failing != reply_status::lost) << step << ' ' << to_string(failing);
            }
            if (step != 1) {
                EXPECT_TRUE(undo[1]) << step << ' ' << to_string(failing);
            }
            if (step < 2) {
                const bool may_have = failing == reply_status::timeout || failing == reply_status::broken;
                EXPECT_EQ(undo[step], may_have) << step << ' ' << to_string(failing);
            }
        }
    }
}

}  // namespace
}  // namespace lockcore
