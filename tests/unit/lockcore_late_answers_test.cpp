// Answers that arrive too late to count: docs/protocol.md R4, R6, FAST READMISSION step 1.
#include "core_with_held_answers.hpp"

namespace lockcore {
namespace {

using namespace std::chrono_literals;

/// Two nodes answer at once, the others when the test lets them.
class late_answers : public core_with_held_answers {
  protected:
    static constexpr node_list late{2, 3, 4};

    late_answers() { claims_ = grant(); }

    /// The late nodes answer so long after the first request.
    void answer_after(milliseconds time, command_kind kind) {
        pass(time);
        deliver(kind, late);
    }
    /// Returns the holder's own lease, which a node answers to this request. It has an idempotency key if the request
    /// has one.
    static node_reply make_own(const acquire_request& request, fencing_token token = fencing_token{7}) {
        lease_record record;
        record.attempt_id = nonce::from_bits(8, 8);
        record.stamp = 9;
        record.token = token;
        record.holder = request.holder;
        const idempotency_digest key = make_idempotency_digest(request);
        if (!key.empty()) record.keys = key.text + ':' + std::string(hold_id::of_grant(record.attempt_id).str());
        node_reply reply = answer(reply_status::own, 0, 500ms);
        reply.text = record.format();
        return reply;
    }
    /// Starts a request for a lease that its holder has already, which the nodes answer.
    call_id start_repeated(acquire_request request, fencing_token token = fencing_token{7}) {
        set_reply(command_kind::acquire, every_node, make_own(request, token));
        return start(input::acquire{{}, std::move(request)});
    }
    static acquire_request with_key() {
        acquire_request request = make_request();
        request.idempotency_key = "key";
        return request;
    }
    /// Starts the call twice: answers within the bound count, later ones do not.
    template <class Start>
    void expect_silence_after_bound(command_kind kind, Start start) {
        hold(kind, late);
        const call_id timely = start();
        answer_after(bound_, kind);
        EXPECT_TRUE(succeeded(timely));
        const call_id tardy = start();
        answer_after(bound_ + 1ms, kind);
        EXPECT_EQ(failure_of(tardy), errc::no_quorum);
    }
    void expect_undone_hold() {
        EXPECT_EQ(count_sent(command_kind::release), 5U);
        EXPECT_EQ(last_sent(command_kind::release).scope, release_scope::undone_hold);
        EXPECT_EQ(last_sent(command_kind::release).hold, last_sent(command_kind::hold).hold);
    }

    const milliseconds bound_ = settings_.answer_bound;
    lease_claims claims_;
};

// --- D, the bound of an answer

TEST_F(late_answers, acquire_answered_within_bound_is_granted) {
    hold(command_kind::acquire, late);
    EXPECT_FALSE(acquire());
    answer_after(bound_, command_kind::acquire);
    EXPECT_TRUE(lease_ && lease_->has_value());
}

TEST_F(late_answers, acquire_answered_after_bound_is_not_granted) {
    hold(command_kind::acquire, late);
    EXPECT_FALSE(acquire());
    answer_after(bound_ + 1ms, command_kind::acquire);
    ASSERT_TRUE(lease_.has_value());
    EXPECT_EQ(lease_->error().code, errc::no_quorum);
    EXPECT_EQ(undone_.count(), 5U) << "each node may have the lease";
}

/// The nodes have different counters, so that all but one get CONFIRM.
class late_confirmations : public late_answers {
  protected:
    late_confirmations() {
        reply_with(0, reply_status::ok, value_of(claims_.token) + 9);
        hold(command_kind::acquire);
        hold(command_kind::confirm, late);
        EXPECT_FALSE(acquire());
        pass(300ms);
        deliver(command_kind::acquire);
        EXPECT_EQ(count_sent(command_kind::confirm), 4U);
    }
};

TEST_F(late_confirmations, count_within_bound_of_first_acquire) {
    answer_after(bound_ - 300ms, command_kind::confirm);
    EXPECT_TRUE(lease_ && lease_->has_value());
}

TEST_F(late_confirmations, are_silence_after_bound_of_first_acquire) {
    answer_after(bound_ - 299ms, command_kind::confirm);
    ASSERT_TRUE(lease_.has_value());
    EXPECT_EQ(lease_->error().code, errc::no_quorum);
}

TEST_F(late_answers, renewal_answered_after_bound_is_silence) {
    expect_silence_after_bound(command_kind::renew, [this] { return renew(claims_); });
}

TEST_F(late_answers, inspection_answered_after_bound_is_silence) {
    expect_silence_after_bound(command_kind::inspect, [this] { return inspect(claims_); });
}

TEST_F(late_answers, close_answered_after_bound_is_silence) {
    expect_silence_after_bound(command_kind::close, [this] { return close(claims_); });
}

TEST_F(late_answers, hold_answered_after_bound_is_undone) {
    expect_silence_after_bound(command_kind::hold, [this] { return start_repeated(request_of_named_owner()); });
    expect_undone_hold();
}

TEST_F(late_answers, release_answered_after_bound_is_done) {
    hold(command_kind::release, late);
    const call_id call = release(claims_);
    EXPECT_FALSE(is_answered(call));
    answer_after(bound_ + 1ms, command_kind::release);
    EXPECT_TRUE(succeeded(call));
}

// --- the validity (R6)

TEST_F(late_answers, acquire_answered_after_ttl_is_undone) {
    hold(command_kind::acquire, late);
    EXPECT_FALSE(acquire(make_request(100ms)));
    answer_after(150ms, command_kind::acquire);
    ASSERT_TRUE(lease_.has_value());
    EXPECT_EQ(lease_->error().code, errc::no_quorum);
    EXPECT_EQ(undone_.count(), 5U);
}

TEST_F(late_answers, renewal_answered_after_ttl_is_lost) {
    hold(command_kind::renew, late);
    const call_id call = renew(claims_, 100ms);
    answer_after(150ms, command_kind::renew);
    EXPECT_EQ(failure_of(call), errc::lease_lost);
}

TEST_F(late_answers, hold_answered_after_ttl_is_undone) {
    hold(command_kind::hold, late);
    const call_id call = start_repeated(request_of_named_owner(100ms));
    answer_after(150ms, command_kind::hold);
    EXPECT_EQ(failure_of(call), errc::no_quorum);
    expect_undone_hold();
}

TEST_F(late_answers, hold_of_cancelled_call_is_undone) {
    hold(command_kind::hold, late);
    const call_id call = start_repeated(request_of_named_owner());
    step(input::cancel{call});
    EXPECT_FALSE(is_answered(call));
    deliver(command_kind::hold, late);
    EXPECT_EQ(failure_of(call), errc::cancelled);
    expect_undone_hold();
}

TEST_F(late_answers, repeated_request_without_validity_left_is_refused) {
    node_reply live = ok(0);
    live.remaining = 100ms;
    set_reply(command_kind::inspect, every_node, live);
    EXPECT_TRUE(succeeded(start_repeated(with_key())));
    live.remaining = 1ms;
    set_reply(command_kind::inspect, every_node, live);
    EXPECT_EQ(failure_of(start_repeated(with_key())), errc::resource_locked);
}

// TOP-UP writes a lease without a token, on one node at a time; all of them have none only if they are faulty.
TEST_F(late_answers, own_lease_without_a_token_is_not_given_again) {
    EXPECT_EQ(failure_of(start_repeated(request_of_named_owner(), fencing_token{})), errc::resource_locked);
    EXPECT_EQ(count_sent(command_kind::hold), 0U);
}

// --- RELEASE that a node may not have run

/// One node does not run a RELEASE.
class missed_release : public late_answers {
  protected:
    static constexpr std::size_t failing = 4;

    missed_release() { hold(command_kind::release, {failing}); }

    void let_time_pass() {
        pass(1s);
        step(input::tick{});
    }
    /// The RELEASE is sent to the node again, until it has answered, and to no other node.
    void expect_repetition() {
        set_reply(command_kind::release, {failing}, ok(0));
        for (int n = 0; n < 3; ++n)
            let_time_pass();
        EXPECT_EQ(count_sent(command_kind::release, {failing}), 2U);
        deliver(command_kind::release, {failing});
        let_time_pass();
        EXPECT_EQ(count_sent(command_kind::release, {failing}), 2U);
        EXPECT_EQ(count_sent(command_kind::release), 6U);
    }
};

TEST_F(missed_release, is_repeated_after_unreadable_reply) {
    EXPECT_TRUE(succeeded(release(claims_)));
    set_reply(command_kind::release, {failing}, status_reply(reply_status::error));
    deliver(command_kind::release, {failing});
    expect_repetition();
}

TEST_F(missed_release, is_repeated_after_error_of_script) {
    EXPECT_TRUE(succeeded(release(claims_)));
    deliver_error(command_kind::release, failing, "OOM command not allowed when used memory > 'maxmemory'.");
    EXPECT_NE(status(failing).state, node_state::voting);
    expect_repetition();
}

TEST_F(missed_release, is_repeated_after_loss_of_admission) {
    EXPECT_TRUE(succeeded(release(claims_)));
    deliver_error(command_kind::release, failing, "UNINIT");
    expect_repetition();
}

TEST_F(missed_release, is_repeated_after_broken_connection) {
    EXPECT_TRUE(succeeded(release(claims_)));
    step(input::disconnected{node(failing), connections_[failing], "reset"});
    EXPECT_EQ(status(failing).state, node_state::unreachable);
    expect_repetition();
}

TEST_F(missed_release, of_a_failed_hold_is_repeated) {
    set_reply(command_kind::hold, every_node, status_reply(reply_status::error));
    start_repeated(request_of_named_owner());
    expect_undone_hold();
    step(input::disconnected{node(failing), connections_[failing], "reset"});
    expect_repetition();
}

TEST_F(missed_release, of_a_close_mark_is_repeated) {
    const call_id closing = close(claims_);
    ASSERT_TRUE(succeeded(closing));
    hold(command_kind::close, {failing});
    step(input::reopen{claims_, std::get<result<close_outcome>>(answers_.at(closing)).value()});
    EXPECT_EQ(count_sent(command_kind::close), 10U);
    step(input::disconnected{node(failing), connections_[failing], "reset"});
    for (int n = 0; n < 3; ++n)
        let_time_pass();
    EXPECT_EQ(count_sent(command_kind::close, {failing}), 3U);
    EXPECT_EQ(count_sent(command_kind::close), 11U);
    EXPECT_TRUE(last_sent(command_kind::close).lift);
}

}  // namespace
}  // namespace lockcore
