// Requests that are cancelled by their idempotency key: at the core that has them, and those that are elsewhere.
#include <proto/lease_record.hpp>

#include "core_with_held_answers.hpp"

namespace lockcore {
namespace {

class cancelled_requests_test : public core_with_held_answers {
  protected:
    cancelled_requests_test() { set_reply(command_kind::look, every_node, status_reply(reply_status::lost)); }

    static acquire_request keyed_request(milliseconds wait = 0ms, const std::string& key = "k") {
        acquire_request request = make_request();
        request.wait = wait;
        request.idempotency_key = key;
        return request;
    }
    call_id begin(acquire_request request) { return start(input::acquire{{}, std::move(request)}); }
    call_id cancel(acquire_request request = keyed_request()) {
        return start(input::cancel_request{{}, std::move(request)});
    }
    /// Returns the reply of a node that has a lease with the hold `first_hold`, taken with the key of the request.
    node_reply lease_of(const acquire_request& request, const std::string& token = "9") const {
        node_reply reply = ok(0);
        reply.remaining = 900ms;
        reply.text = std::string(32, 'a') + ' ' + token + " 0 1000 0 5 " + make_idempotency_digest(request).text + ':' +
                     std::string(first_hold_.str()) + "\n" + request.holder.principal + "\n" + request.holder.owner +
                     "\n\n" + std::string(first_hold_.str()) + "\n\n";
        return reply;
    }
    bool has_released_the_hold() const {
        return count_sent(command_kind::release) > 0 &&
               last_sent(command_kind::release).hold == first_hold_.confirmed() &&
               last_sent(command_kind::release).scope == release_scope::hold;
    }

    const hold_id first_hold_ = hold_id::parse("00000000000000a2").value();
};

TEST_F(cancelled_requests_test, waiting_call_is_refused_and_leaves_the_queue) {
    set_reply(command_kind::acquire, every_node, held());
    const call_id waiting = begin(keyed_request(10s)), other_key = begin(keyed_request(10s, "other"));
    EXPECT_EQ(core_->waiters(), 2U);
    EXPECT_TRUE(succeeded(cancel()));
    EXPECT_EQ(failure_of(waiting), errc::idempotency_mismatch);
    EXPECT_FALSE(is_answered(other_key));
    EXPECT_EQ(core_->waiters(), 1U);
}

TEST_F(cancelled_requests_test, call_that_is_granted_meanwhile_is_undone) {
    hold(command_kind::acquire);
    const call_id acquiring = begin(keyed_request());
    const call_id cancelling = cancel();
    EXPECT_FALSE(is_answered(cancelling)) << "the grant is not undone yet";
    deliver(command_kind::acquire);
    EXPECT_EQ(failure_of(acquiring), errc::idempotency_mismatch);
    EXPECT_EQ(undone_.count(), 5U);
    EXPECT_TRUE(succeeded(cancelling));
}

TEST_F(cancelled_requests_test, grant_of_a_caller_that_hung_up_stays_until_it_is_cancelled) {
    hold(command_kind::acquire);
    const call_id acquiring = begin(keyed_request());
    step(input::cancel{acquiring});
    deliver(command_kind::acquire);
    EXPECT_TRUE(succeeded(acquiring));
    EXPECT_EQ(undone_.count(), 0U);
}

TEST_F(cancelled_requests_test, hold_of_the_key_is_released_where_another_core_granted_it) {
    set_reply(command_kind::look, every_node, lease_of(keyed_request()));
    EXPECT_TRUE(succeeded(cancel()));
    EXPECT_TRUE(has_released_the_hold());
}

TEST_F(cancelled_requests_test, hold_of_the_key_is_released_whatever_the_tokens_of_nodes) {
    set_reply(command_kind::look, {0, 1}, lease_of(keyed_request(), "9"));
    set_reply(command_kind::look, {2, 3}, lease_of(keyed_request(), "10"));
    EXPECT_TRUE(succeeded(cancel()));
    EXPECT_TRUE(has_released_the_hold()) << "no majority has a token of it, and nobody else can get the resource";
}

TEST_F(cancelled_requests_test, lease_of_a_majority_is_handed_over) {
    set_reply(command_kind::acquire, every_node, held());
    begin(keyed_request(10s, "other"));
    const std::size_t tries = count_sent(command_kind::acquire);
    set_reply(command_kind::look, {0, 1, 2}, lease_of(keyed_request()));
    EXPECT_TRUE(succeeded(cancel()));
    EXPECT_EQ(count_sent(command_kind::acquire), tries + 5);
}

TEST_F(cancelled_requests_test, lease_of_a_minority_is_released_without_a_try_of_waiters) {
    set_reply(command_kind::acquire, every_node, held());
    acquire_request both = keyed_request(10s, "both");
    both.resources.insert(both.resources.begin(), resource_name::parse("q").value());
    begin(keyed_request(10s, "other"));
    begin(both);
    const std::size_t tries = count_sent(command_kind::acquire);
    set_reply(command_kind::look, {0, 1}, lease_of(keyed_request()));
    set_reply(command_kind::release, {2, 3, 4}, status_reply(reply_status::lost));
    EXPECT_TRUE(succeeded(cancel()));
    EXPECT_TRUE(has_released_the_hold());
    EXPECT_EQ(count_sent(command_kind::acquire), tries) << "no resource became free";
}

TEST_F(cancelled_requests_test, lease_of_another_request_stays) {
    acquire_request of_principal = keyed_request();
    of_principal.holder.principal = "q";
    for (const acquire_request& request : {of_principal, keyed_request(0ms, "other")}) {
        set_reply(command_kind::look, every_node, lease_of(request));
        EXPECT_TRUE(succeeded(cancel()));
        EXPECT_EQ(count_sent(command_kind::release), 0U);
    }
}

TEST_F(cancelled_requests_test, hold_of_the_key_is_released_whatever_its_owner) {
    acquire_request of_owner = keyed_request();
    of_owner.holder.owner = "me";
    set_reply(command_kind::look, every_node, lease_of(of_owner));
    EXPECT_TRUE(succeeded(cancel()));
    EXPECT_TRUE(has_released_the_hold());
}

TEST_F(cancelled_requests_test, later_request_is_refused_while_it_may_be_on_its_way) {
    cancel(keyed_request(5s));
    EXPECT_EQ(failure_of(begin(keyed_request(5s))), errc::idempotency_mismatch);
    EXPECT_TRUE(acquire(keyed_request(0ms, "other")));
    pass(14'999ms);
    EXPECT_EQ(failure_of(begin(keyed_request())), errc::idempotency_mismatch);
    pass(1ms);
    EXPECT_TRUE(acquire(keyed_request()));
}

TEST_F(cancelled_requests_test, later_grant_elsewhere_is_found_and_released) {
    cancel(keyed_request(5s));
    for (int searches = 0; searches < 3; ++searches)
        pass(2s);
    EXPECT_EQ(count_sent(command_kind::release), 0U);
    set_reply(command_kind::look, every_node, lease_of(keyed_request()));
    pass(2s);
    EXPECT_TRUE(has_released_the_hold());
}

TEST_F(cancelled_requests_test, search_ends_when_the_key_is_forgotten) {
    cancel();
    pass(10s);
    const std::size_t searches = count_sent(command_kind::look);
    set_reply(command_kind::look, every_node, lease_of(keyed_request()));
    pass(2s);
    EXPECT_EQ(count_sent(command_kind::look), searches);
    EXPECT_EQ(core_->next_timer(), std::nullopt);
}

TEST_F(cancelled_requests_test, without_a_majority_it_fails_and_the_search_goes_on) {
    set_reply(command_kind::look, {0, 1, 2}, status_reply(reply_status::timeout));
    EXPECT_EQ(failure_of(cancel()), errc::no_quorum);
    set_reply(command_kind::look, every_node, lease_of(keyed_request()));
    pass(100ms);
    EXPECT_TRUE(has_released_the_hold());
}

TEST_F(cancelled_requests_test, one_principal_has_three_quarters_of_the_places) {
    settings_.waiters_max = 4;
    for (const std::string key : {"a", "b", "c"})
        EXPECT_TRUE(succeeded(cancel(keyed_request(0ms, key))));
    EXPECT_EQ(failure_of(cancel(keyed_request(0ms, "d"))), errc::busy);
    EXPECT_TRUE(succeeded(cancel(keyed_request(0ms, "a")))) << "it has a place";
    acquire_request of_another = keyed_request();
    of_another.holder.principal = "q";
    EXPECT_TRUE(succeeded(cancel(of_another)));
    pass(10s);
    EXPECT_TRUE(succeeded(cancel(keyed_request(0ms, "d"))));
}

}  // namespace
}  // namespace lockcore
