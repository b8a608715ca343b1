// Calls of a core that last: a caller that waits, and a lease that is kept.
#include "core_with_held_answers.hpp"

namespace lockcore {
namespace {

using namespace std::chrono_literals;

class long_calls : public core_with_held_answers {
  protected:
    kept_lease grant_kept() {
        acquire_request request = make_request(900ms);
        request.kept = true;
        EXPECT_TRUE(acquire(std::move(request)));
        return kept_lease(lease_->value());
    }
    void wait() {
        acquire_request waiting = make_request();
        waiting.wait = 10s;
        EXPECT_FALSE(acquire(std::move(waiting)));
        EXPECT_EQ(core_->waiters(), 1U);
    }
    call_id keep(const kept_lease& kept) { return start(input::keep{{}, kept, {}}); }
    const keep_step& step_of(call_id call) const { return std::get<result<keep_step>>(answers_.at(call)).value(); }
    void expect_held(const kept_lease& kept) {
        EXPECT_EQ(count_sent(command_kind::release) + count_sent(command_kind::undo), 0U);
        EXPECT_TRUE(succeeded(renew(kept.current.claims)));
    }
};

TEST_F(long_calls, waiter_is_not_overtaken_by_a_caller_that_does_not_wait) {
    set_reply(command_kind::acquire, {0, 1, 2}, held());
    wait();
    set_reply(command_kind::acquire, every_node, ok(0));
    const std::size_t sent = count_sent(command_kind::acquire);
    EXPECT_FALSE(acquire());
    EXPECT_EQ(lease_->error().code, errc::resource_locked);
    EXPECT_EQ(count_sent(command_kind::acquire), sent);
}

TEST_F(long_calls, waiter_is_granted_once_a_majority_is_back) {
    set_reply(command_kind::acquire, {0, 1, 2}, status_reply(reply_status::unreachable));
    wait();
    pass(1s);
    EXPECT_FALSE(lease_) << "it still waits";
    set_reply(command_kind::acquire, every_node, ok(0));
    pass(wait_queue::retry_delay_max);
    EXPECT_TRUE(lease_ && *lease_);
}

TEST_F(long_calls, kept_lease_is_renewed_until_its_limit_and_stays_held) {
    kept_lease kept = grant_kept();
    kept.limit_hold(1s);
    for (int renewals = 0; renewals < 3; ++renewals) {
        const call_id call = keep(kept);
        EXPECT_FALSE(is_answered(call));
        pass(300ms);
        ASSERT_EQ(step_of(call).result, keep_step::outcome::renewed) << step_of(call).reason;
        kept = step_of(call).kept;
    }
    const call_id last = keep(kept);
    pass(99ms);
    EXPECT_FALSE(is_answered(last));
    pass(2ms);
    EXPECT_EQ(step_of(last).result, keep_step::outcome::exhausted);
    expect_held(kept);
}

TEST_F(long_calls, kept_lease_stays_held_when_the_call_is_cancelled) {
    const kept_lease kept = grant_kept();
    const call_id call = keep(kept);
    step(input::cancel{call});
    EXPECT_EQ(failure_of(call), errc::cancelled);
    expect_held(kept);
}

}  // namespace
}  // namespace lockcore
