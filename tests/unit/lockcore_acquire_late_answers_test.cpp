// The acquire machine: answers that come late, after a higher token was chosen or the attempt has ended;
// and what it reports of an attempt that failed.
#include <proto/acquire_machine.hpp>

#include "acquire_answers.hpp"

#include <gtest/gtest.h>

namespace lockcore {
namespace {

using verdict = acquire_machine::verdict;

TEST(acquire, answers_after_the_failure_change_nothing) {
    for (const bool are_held : {false, true}) {
        acquire_machine a(3);
        a.start();
        for (std::size_t n = 0; n < 3; ++n)
            a.acquire_answered(node(n), status_reply(reply_status::timeout));
        ASSERT_EQ(a.outcome(), verdict::no_quorum);
        for (std::size_t n = 0; n < 3; ++n)
            EXPECT_FALSE(a.acquire_answered(node(n), are_held ? held() : ok(5 + n)).targets.any());
        EXPECT_EQ(a.outcome(), verdict::no_quorum) << "its caller was answered so";
        EXPECT_EQ(a.token(), fencing_token{});
    }
}

/// Returns an attempt of three nodes with T = 2, whose CONFIRM to n0 is unanswered; n2 has answered `third`.
acquire_machine confirming(const node_reply& third) {
    acquire_machine a(3);
    a.start();
    a.acquire_answered(node(2), third);
    a.acquire_answered(node(0), ok(1));
    EXPECT_EQ(nodes_of(a.acquire_answered(node(1), ok(2))), "0");
    return a;
}

TEST(acquire, confirmations_after_the_failure_change_nothing) {
    acquire_machine a = confirming(status_reply(reply_status::unreachable));
    a.confirm_answered(node(0), fencing_token{2}, status_reply(reply_status::timeout));
    ASSERT_EQ(a.outcome(), verdict::no_quorum);
    EXPECT_FALSE(a.confirm_answered(node(0), fencing_token{2}, stale(9)).targets.any());
    EXPECT_FALSE(a.confirm_answered(node(0), fencing_token{2}, ok(2)).targets.any());
    EXPECT_EQ(a.outcome(), verdict::no_quorum);
    EXPECT_EQ(a.token(), fencing_token{2});
}

TEST(acquire, refusal_of_a_token_by_no_higher_counter_ends_the_attempt) {
    for (const std::uint64_t counter : {0U, 1U, 2U}) {
        acquire_machine a = confirming(status_reply(reply_status::unreachable));
        EXPECT_FALSE(a.confirm_answered(node(0), fencing_token{2}, stale(counter)).targets.any());
        EXPECT_EQ(a.outcome(), verdict::no_quorum);
        EXPECT_TRUE(a.undo_targets()[0]) << "it has the lease";
    }
}

/// Five nodes, two of them down, and T = 2; n0 answers to CONFIRM(2) that its counter is 9.
class raised_token : public testing::Test {
  protected:
    raised_token() {
        machine_.start();
        for (const std::size_t n : {3U, 4U})
            machine_.acquire_answered(node(n), status_reply(reply_status::unreachable));
        machine_.acquire_answered(node(0), ok(1));
        machine_.acquire_answered(node(1), ok(1));
        EXPECT_EQ(nodes_of(machine_.acquire_answered(node(2), ok(2))), "01");
        EXPECT_EQ(nodes_of(machine_.confirm_answered(node(0), fencing_token{2}, stale(9))), "012");
    }
    void expect_granted_by_three() {
        EXPECT_EQ(machine_.token(), fencing_token{9});
        for (std::size_t n = 0; n < 3; ++n) {
            EXPECT_EQ(machine_.outcome(), verdict::pending);
            machine_.confirm_answered(node(n), fencing_token{9}, ok(9));
        }
        EXPECT_EQ(machine_.outcome(), verdict::granted);
    }

    acquire_machine machine_{5};
};

TEST_F(raised_token, lower_counter_in_a_late_answer_does_not_lower_it) {
    EXPECT_FALSE(machine_.confirm_answered(node(1), fencing_token{2}, stale(5)).targets.any());
    expect_granted_by_three();
}

TEST_F(raised_token, timeout_of_an_older_confirmation_excludes_no_node) {
    machine_.confirm_answered(node(1), fencing_token{2}, status_reply(reply_status::timeout));
    expect_granted_by_three();
}

// n2 has not answered; it must not be taken for a node whose counter is too high.
TEST(acquire, raise_leaves_nodes_alone_that_have_not_answered) {
    acquire_machine a(3);
    a.start();
    a.acquire_answered(node(0), ok(1));
    a.acquire_answered(node(1), ok(2));
    ASSERT_EQ(nodes_of(a.confirm_answered(node(0), fencing_token{2}, stale(9))), "01");
    EXPECT_FALSE(a.confirm_answered(node(0), fencing_token{9}, status_reply(reply_status::timeout)).targets.any());
    EXPECT_EQ(a.token(), fencing_token{9});
    EXPECT_EQ(nodes_of(a.acquire_answered(node(2), ok(5))), "2");
    a.confirm_answered(node(2), fencing_token{9}, ok(9));
    a.confirm_answered(node(1), fencing_token{9}, ok(9));
    EXPECT_EQ(a.outcome(), verdict::granted);
}

// --- what is reported of an attempt that failed

TEST(acquire, lease_lost_to_another_is_an_answer_that_it_is_locked) {
    acquire_machine a = confirming(status_reply(reply_status::timeout));
    a.confirm_answered(node(0), fencing_token{2}, status_reply(reply_status::lost));
    EXPECT_EQ(a.outcome(), verdict::locked);
}

TEST(acquire, nothing_to_wait_for_while_a_majority_is_free) {
    acquire_machine a = confirming(held());
    a.confirm_answered(node(0), fencing_token{2}, status_reply(reply_status::timeout));
    EXPECT_NE(a.outcome(), verdict::granted);
    EXPECT_EQ(a.remaining(), milliseconds{0});
    acquire_machine unanswered(3);
    unanswered.start();
    EXPECT_EQ(unanswered.remaining(), milliseconds{0});
}

TEST(acquire, values_that_are_no_leases_are_named) {
    acquire_machine a(3);
    a.start();
    a.acquire_answered(node(0), answer(reply_status::held, 0));
    a.acquire_answered(node(1), held());
    EXPECT_EQ(a.occupied(), node_set{0b001});
}

TEST(acquire, leases_of_two_attempts_with_one_token_are_two) {
    acquire_machine a(5);
    a.start();
    a.acquire_answered(node(0), own('a', 9));
    a.acquire_answered(node(1), own('a', 9));
    a.acquire_answered(node(2), own('b', 9));
    a.acquire_answered(node(3), held());
    a.acquire_answered(node(4), held());
    EXPECT_FALSE(a.own_lease());
}

TEST(acquire, own_lease_with_another_holder_is_another_lease) {
    node_reply forged = own('a', 9);
    forged.text.replace(forged.text.find("\nme\n"), 4, "\nanother\n");
    acquire_machine a(5);
    a.start();
    a.acquire_answered(node(0), forged);
    a.acquire_answered(node(1), own('a', 9));
    a.acquire_answered(node(2), own('a', 9));
    EXPECT_FALSE(a.own_lease()) << "two nodes are no majority";
    a.acquire_answered(node(3), own('a', 9));
    ASSERT_TRUE(a.own_lease());
    EXPECT_EQ(a.own_lease()->holder.owner, "me");
}

TEST(acquire, own_lease_has_the_holds_of_all_its_copies) {
    const auto with_hold = [](char attempt, char hold) {
        node_reply r = own(attempt, 9);
        r.text.insert(r.text.size() - 2, std::string(hold_id::size, hold));
        return r;
    };
    acquire_machine a(5);
    a.start();
    a.acquire_answered(node(0), with_hold('a', '2'));
    a.acquire_answered(node(1), with_hold('b', '6'));
    a.acquire_answered(node(2), with_hold('a', '2'));
    a.acquire_answered(node(3), with_hold('a', '4'));
    ASSERT_TRUE(a.own_lease());
    EXPECT_EQ(a.own_lease()->holds.text(),
              std::string(hold_id::size, '2') + ',' + std::string(hold_id::size, '4') + "\n\n");
}

}  // namespace
}  // namespace lockcore
