// How a core ends leases: hand-over, the undo of what failed, and CLOSE (docs/protocol.md R7,
// HAND-OVER, HOLDS); and how it watches them.
#include "acquire_answers.hpp"
#include "core_of_five_nodes.hpp"

namespace lockcore {
namespace {

/// The nodes answer a command when the test says so.
class lease_ends_test : public core_of_five_nodes {
  protected:
    /// Performs a step, and keeps what follows from it.
    void pass_in(core_input what) {
        for (core_action& one : core_->step(std::move(what), clocks())) {
            if (auto* sent = std::get_if<action::send_batch>(&one)) sent_.push_back(std::move(*sent));
            if (auto* answered = std::get_if<action::answer>(&one))
                answers_[answered->call] = std::move(answered->result);
        }
    }
    void flush() {
        while (core_->needs_flush())
            pass_in(input::flush{});
    }
    void call(core_input what) {
        pass_in(std::move(what));
        flush();
    }
    /// Requires that the commands in flight are one of this kind for each node, and takes them.
    std::vector<action::send_batch> take_round(command_kind kind) {
        EXPECT_EQ(sent_.size(), 5U);
        for (const action::send_batch& one : sent_)
            EXPECT_EQ(one.kind, kind);
        return std::exchange(sent_, {});
    }
    /// Answers the commands in flight of the first nodes, all in one turn.
    void answer_round(command_kind kind, const std::vector<node_reply>& replies) {
        const auto round = take_round(kind);
        for (std::size_t n = 0; n < std::min(round.size(), replies.size()); ++n)
            pass_in(input::batch_answered{round[n].node, round[n].connection, round[n].batch, {replies[n]}, {}});
        flush();
    }
    static const lease_call& call_of(const action::send_batch& sent) { return sent.items.front().target->call(); }

    template <class Result>
    const result<Result>& answer_to(call_id call) const {
        return std::get<result<Result>>(answers_.at(call));
    }

    std::vector<action::send_batch> sent_;  ///< Those in flight.
};

/// A lease is held, and a caller waits for it.
class release_with_a_waiter : public lease_ends_test {
  protected:
    release_with_a_waiter() {
        EXPECT_TRUE(acquire());
        held_ = lease_->value().claims;
        acquire_request waiting = request_of_named_owner();
        waiting.wait = 10s;
        call(input::acquire{call_id{100}, std::move(waiting)});
        answer_round(command_kind::acquire, std::vector(5, held()));
        EXPECT_EQ(core_->waiters(), 1U);
    }
    void release() { call(input::release{call_id{101}, held_, {}}); }
    /// Hands the lease over to the waiter; three nodes reply to its ACQUIRE.
    const result<release_outcome>& hand_over(const node_reply& reply) {
        release();
        for (const action::send_batch& one : sent_)
            EXPECT_EQ(call_of(one).previous, held_.attempt_id);
        answer_round(command_kind::acquire, std::vector(3, reply));
        return answer_to<release_outcome>(call_id{101});
    }
    static void expect_lost(const result<release_outcome>& released) {
        ASSERT_FALSE(released);
        EXPECT_EQ(released.error().code, errc::lease_lost);
    }

    lease_claims held_;
};

TEST_F(release_with_a_waiter, is_no_hand_over_while_the_waiter_tries) {
    now_ += wait_queue::retry_delay_max;
    call(input::timer{});
    for (const action::send_batch& one : take_round(command_kind::acquire))
        EXPECT_FALSE(call_of(one).previous);
    release();
    take_round(command_kind::release);
}

TEST_F(release_with_a_waiter, that_replaces_the_lease_has_released_it) {
    node_reply reply = ok(value_of(held_.token) + 1);
    reply.took_over = true;
    const auto& released = hand_over(reply);
    ASSERT_TRUE(released);
    EXPECT_EQ(released->nodes_released, 3U);
}

TEST_F(release_with_a_waiter, that_finds_no_lease_on_a_majority_has_lost_it) {
    expect_lost(hand_over(ok(value_of(held_.token) + 1)));
}

TEST_F(release_with_a_waiter, that_finds_the_lease_of_another_has_lost_it) {
    expect_lost(hand_over(held()));
}

TEST_F(release_with_a_waiter, that_finds_another_lease_of_the_waiter_has_lost_it) {
    expect_lost(hand_over(own('a', 9)));
}

TEST_F(release_with_a_waiter, is_sent_to_a_node_that_may_not_have_replaced_the_lease) {
    node_reply replaced = ok(value_of(held_.token) + 1);
    replaced.took_over = true;
    release();
    answer_round(command_kind::acquire, {replaced, replaced, replaced, replaced, status_reply(reply_status::error)});
    const auto sent =
        std::ranges::find_if(sent_, [](const action::send_batch& one) { return one.kind == command_kind::release; });
    ASSERT_NE(sent, sent_.end());
    EXPECT_EQ(value_of(sent->node), 4U);
    EXPECT_EQ(call_of(*sent).attempt_id, held_.attempt_id);
}

// --- undo

TEST_F(lease_ends_test, undo_of_a_failed_grant_ends_only_its_hold) {
    call(input::acquire{call_id{1}, request_of_named_owner()});
    answer_round(command_kind::acquire, {ok(8), held(), held(), held(), held()});
    EXPECT_FALSE(answer_to<lease>(call_id{1}));
    ASSERT_EQ(sent_.size(), 1U);
    EXPECT_EQ(sent_[0].kind, command_kind::undo);
    EXPECT_EQ(call_of(sent_[0]).scope, release_scope::undone_hold);
}

TEST_F(lease_ends_test, undo_of_a_failed_hold_ends_only_that_hold) {
    call(input::acquire{call_id{1}, request_of_named_owner()});
    answer_round(command_kind::acquire, std::vector(5, own('a', 9)));
    const hold_id added = call_of(sent_.at(0)).hold;
    answer_round(command_kind::hold, {ok(0), status_reply(reply_status::error), status_reply(reply_status::error),
                                      status_reply(reply_status::error), status_reply(reply_status::error)});
    EXPECT_FALSE(answer_to<lease>(call_id{1}));
    for (const action::send_batch& one : take_round(command_kind::release)) {
        EXPECT_EQ(call_of(one).scope, release_scope::undone_hold);
        EXPECT_EQ(call_of(one).hold, added);
    }
}

// --- CLOSE

TEST_F(lease_ends_test, failed_close_takes_its_marks_back) {
    ASSERT_TRUE(acquire());
    call(input::close_to_new_holds{call_id{100}, lease_->value().claims});
    const std::string mark = call_of(sent_.at(0)).close_mark;
    EXPECT_FALSE(call_of(sent_.at(0)).lift);
    const node_reply kept = status_reply(reply_status::other_holds);
    answer_round(command_kind::close, {ok(0), kept, kept, kept, kept});
    ASSERT_TRUE(answer_to<close_outcome>(call_id{100}));
    EXPECT_FALSE(answer_to<close_outcome>(call_id{100})->closed);
    for (const action::send_batch& one : take_round(command_kind::close)) {
        EXPECT_TRUE(call_of(one).lift);
        EXPECT_EQ(call_of(one).close_mark, mark);
    }
}

TEST_F(lease_ends_test, close_keeps_its_marks) {
    ASSERT_TRUE(acquire());
    call(input::close_to_new_holds{call_id{100}, lease_->value().claims});
    answer_round(command_kind::close, std::vector(5, ok(0)));
    ASSERT_TRUE(answer_to<close_outcome>(call_id{100}));
    EXPECT_TRUE(answer_to<close_outcome>(call_id{100})->closed);
    EXPECT_TRUE(sent_.empty());
}

// --- watches

/// A lease is held, and a caller watches it.
class watch_test : public lease_ends_test {
  protected:
    watch_test() {
        EXPECT_TRUE(acquire());
        held_ = lease_->value().claims;
        call(input::watch{watch_, held_, 10s});
    }
    /// Answers the INSPECT in flight.
    void answer_inspect(reply_status status, milliseconds left = 700ms) {
        answer_round(command_kind::inspect, std::vector(5, answer(status, 0, left)));
    }
    bool is_answered() const { return answers_.contains(watch_); }
    watch_step::outcome outcome() const { return answer_to<watch_step>(watch_)->result; }
    /// Lets a node publish the end of the lease, and lets the nodes answer that they do not have it.
    void end_elsewhere(bool revoked) {
        call(input::lease_ended{node(2), held_.attempt_id, "r", revoked});
        answer_inspect(reply_status::lost);
    }

    const call_id watch_{100};
    lease_claims held_;
};

TEST_F(watch_test, asks_the_nodes_to_notify_this_manager) {
    for (const action::send_batch& sent : sent_) {
        EXPECT_TRUE(call_of(sent).watches);
        EXPECT_EQ(call_of(sent).wake_mark, core_->wake_mark());
    }
    answer_inspect(reply_status::ok);
    EXPECT_FALSE(is_answered());
}

TEST_F(watch_test, of_a_lease_that_is_revoked_elsewhere_has_lost_it) {
    answer_inspect(reply_status::ok);
    end_elsewhere(true);
    EXPECT_EQ(outcome(), watch_step::outcome::lost);
}

TEST_F(watch_test, of_a_lease_that_is_released_elsewhere_says_so) {
    answer_inspect(reply_status::ok);
    end_elsewhere(false);
    EXPECT_EQ(outcome(), watch_step::outcome::released);
}

TEST_F(watch_test, goes_on_after_a_message_about_a_lease_that_lives) {
    answer_inspect(reply_status::ok);
    call(input::lease_ended{node(2), held_.attempt_id, "r", true});
    answer_inspect(reply_status::ok);
    EXPECT_FALSE(is_answered());
}

TEST_F(watch_test, notices_a_message_during_its_round) {
    call(input::lease_ended{node(2), held_.attempt_id, "r", true});
    answer_inspect(reply_status::ok);
    answer_inspect(reply_status::lost);
    EXPECT_EQ(outcome(), watch_step::outcome::lost);
}

TEST_F(watch_test, asks_again_at_the_end_of_the_validity) {
    answer_inspect(reply_status::ok, 700ms);
    now_ += 600ms;
    call(input::timer{});
    EXPECT_TRUE(sent_.empty());
    now_ += 100ms;
    call(input::timer{});
    answer_inspect(reply_status::lost);
    EXPECT_EQ(outcome(), watch_step::outcome::lost);
}

TEST_F(watch_test, of_a_lease_that_lives_ends_after_its_time) {
    answer_inspect(reply_status::ok, 60s);
    now_ += 10s;
    call(input::timer{});
    ASSERT_TRUE(is_answered());
    EXPECT_EQ(outcome(), watch_step::outcome::live);
    EXPECT_EQ(answer_to<watch_step>(watch_)->current.claims, held_);
}

TEST_F(watch_test, that_is_cancelled_ends_after_its_round) {
    call(input::cancel{watch_});
    EXPECT_FALSE(is_answered());
    answer_inspect(reply_status::ok);
    ASSERT_FALSE(answer_to<watch_step>(watch_));
    EXPECT_EQ(answer_to<watch_step>(watch_).error().code, errc::cancelled);
}

}  // namespace
}  // namespace lockcore
