// Leases that are put back, or count again, after a renewal: docs/protocol.md TOP-UP, UPGRADE.
#include "core_with_held_answers.hpp"

namespace lockcore {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t stamp_seen = 5;

// --- TOP-UP

/// Two nodes have lost the lease.
class top_up : public core_with_held_answers {
  protected:
    static constexpr node_list having{0, 1, 2};
    static constexpr node_list lacking{3, 4};

    top_up() {
        claims_ = grant();
        set_reply(command_kind::renew, lacking, status_reply(reply_status::lost));
    }
    std::size_t top_ups() const { return count_sent(command_kind::top_up); }

    lease_claims claims_;
};

TEST_F(top_up, is_sent_within_a_quarter_of_the_ttl) {
    hold(command_kind::renew, lacking);
    EXPECT_TRUE(succeeded(renew(claims_, 400ms)));
    pass(99ms);
    deliver(command_kind::renew, {3});
    EXPECT_EQ(count_sent(command_kind::top_up, {3}), 1U);
    pass(1ms);
    deliver(command_kind::renew, {4});
    EXPECT_EQ(count_sent(command_kind::top_up, {4}), 0U);
}

TEST_F(top_up, second_request_is_sent_within_the_same_time) {
    set_reply(command_kind::top_up, lacking, reply_that_counts(false, stamp_seen));
    hold(command_kind::top_up);
    renew(claims_, 400ms);
    pass(99ms);
    deliver(command_kind::top_up, {3});
    EXPECT_EQ(count_sent(command_kind::top_up, {3}), 2U);
    EXPECT_EQ(last_sent(command_kind::top_up).seen, std::to_string(stamp_seen));
    pass(1ms);
    deliver(command_kind::top_up, {4});
    EXPECT_EQ(count_sent(command_kind::top_up, {4}), 1U);
}

TEST_F(top_up, node_where_lease_never_counts_gets_two_requests) {
    hold(command_kind::top_up);
    renew(claims_);
    for (const std::uint64_t number : {stamp_seen, stamp_seen - 1}) {
        set_reply(command_kind::top_up, lacking, reply_that_counts(false, number));
        deliver(command_kind::top_up, {3});
    }
    EXPECT_EQ(count_sent(command_kind::top_up, {3}), 2U);
}

TEST_F(top_up, node_that_named_its_stamp_gets_one_request) {
    set_reply(command_kind::renew, {3}, lost_with_stamp(stamp_seen));
    set_reply(command_kind::top_up, {3}, reply_that_counts(false, stamp_seen + 1));
    hold(command_kind::top_up);
    renew(claims_);
    EXPECT_EQ(count_sent(command_kind::top_up, {3}), 1U);
    deliver(command_kind::top_up, {3});
    EXPECT_EQ(count_sent(command_kind::top_up, {3}), 1U);
}

TEST_F(top_up, is_not_sent_after_release_was_requested) {
    hold(command_kind::renew);
    hold(command_kind::release);
    renew(claims_);
    release(claims_);
    deliver(command_kind::renew);
    EXPECT_EQ(top_ups(), 0U);
}

TEST_F(top_up, second_request_is_not_sent_after_release_was_requested) {
    set_reply(command_kind::top_up, lacking, reply_that_counts(false, stamp_seen));
    hold(command_kind::top_up);
    hold(command_kind::release);
    renew(claims_);
    release(claims_);
    deliver(command_kind::top_up);
    EXPECT_EQ(top_ups(), 2U) << "one for each node";
}

TEST_F(top_up, is_not_sent_after_lease_was_revoked) {
    hold(command_kind::renew, lacking);
    renew(claims_);
    EXPECT_TRUE(succeeded(revoke(claims_)));
    deliver(command_kind::renew);
    EXPECT_EQ(top_ups(), 0U);
}

TEST_F(top_up, is_not_sent_after_revocation_was_requested) {
    hold(command_kind::renew);
    hold(command_kind::release);
    renew(claims_);
    revoke(claims_);
    deliver(command_kind::renew);
    EXPECT_EQ(top_ups(), 0U);
}

TEST_F(top_up, of_one_hold_is_sent_while_another_is_released) {
    hold(command_kind::renew);
    hold(command_kind::release);
    lease_claims second = claims_;
    second.hold = hold_id::from_bits(77);
    renew(claims_);
    release(second);
    deliver(command_kind::renew);
    EXPECT_EQ(top_ups(), 2U);
}

// --- UPGRADE

/// Three nodes have the lease, but it does not count there, as after a restart of each.
class upgrade : public core_with_held_answers {
  protected:
    static constexpr node_list restarted{2, 3, 4};
    /// The validity of a lease with a ttl of 1 s ends so long after its request.
    static constexpr milliseconds valid_for = 988ms;

    upgrade() {
        claims_ = grant();
        for (const command_kind kind : {command_kind::renew, command_kind::inspect})
            set_reply(kind, restarted, lost_with_stamp(stamp_seen));
        hold(command_kind::top_up);
    }
    /// The lease counts again where TOP-UP arrives.
    void deliver_top_ups() {
        for (const command_kind kind : {command_kind::renew, command_kind::inspect})
            set_reply(kind, restarted, ok(0));
        deliver(command_kind::top_up);
    }
    void expect_refusal(const lease_claims& claims) {
        EXPECT_EQ(failure_of(renew(claims)), errc::no_quorum);
        EXPECT_EQ(count_sent(command_kind::top_up), 0U);
    }
    void expect_success(const lease_claims& claims) {
        const call_id call = renew(claims);
        EXPECT_EQ(count_sent(command_kind::top_up, restarted), 3U);
        deliver_top_ups();
        EXPECT_TRUE(succeeded(call));
    }

    lease_claims claims_;
};

TEST_F(upgrade, lease_counts_again_and_is_renewed) {
    const call_id call = renew(claims_);
    EXPECT_EQ(count_sent(command_kind::top_up), 3U);
    EXPECT_EQ(last_sent(command_kind::top_up).seen, std::to_string(stamp_seen));
    EXPECT_FALSE(is_answered(call));
    deliver_top_ups();
    EXPECT_EQ(count_sent(command_kind::renew), 10U);
    EXPECT_TRUE(succeeded(call));
}

TEST_F(upgrade, lease_counts_again_for_inspection) {
    const call_id call = inspect(claims_);
    deliver_top_ups();
    EXPECT_EQ(count_sent(command_kind::inspect), 10U);
    EXPECT_TRUE(succeeded(call));
}

TEST_F(upgrade, second_renewal_is_not_upgraded_again) {
    const call_id call = renew(claims_);
    deliver(command_kind::top_up);
    EXPECT_EQ(count_sent(command_kind::renew), 10U);
    EXPECT_EQ(count_sent(command_kind::top_up), 3U);
    EXPECT_EQ(failure_of(call), errc::no_quorum);
}

TEST_F(upgrade, too_few_nodes_that_count_get_no_second_renewal) {
    set_reply(command_kind::top_up, restarted, reply_that_counts(false, stamp_seen + 1));
    const call_id call = renew(claims_);
    deliver_top_ups();
    EXPECT_EQ(count_sent(command_kind::renew), 5U);
    EXPECT_EQ(failure_of(call), errc::no_quorum);
}

TEST_F(upgrade, is_done_until_the_validity_ends) {
    pass(valid_for - 1ms);
    expect_success(claims_);
}

TEST_F(upgrade, is_done_after_a_renewal_for_less_within_the_longer_validity) {
    set_reply(command_kind::renew, restarted, ok(0));
    EXPECT_TRUE(succeeded(renew(claims_, 100ms)));
    set_reply(command_kind::renew, restarted, lost_with_stamp(stamp_seen));
    pass(valid_for - 1ms);
    expect_success(claims_);
}

TEST_F(upgrade, is_refused_when_the_validity_is_over) {
    pass(valid_for);
    expect_refusal(claims_);
}

TEST_F(upgrade, is_refused_for_lease_of_another_gateway) {
    claims_.attempt_id = nonce::from_bits(8, 8);
    expect_refusal(claims_);
}

TEST_F(upgrade, is_refused_for_another_token_of_the_attempt) {
    claims_.token = fencing_token{value_of(claims_.token) - 1};
    expect_refusal(claims_);
}

TEST_F(upgrade, validity_that_ends_meanwhile_then_no_second_renewal) {
    pass(valid_for - 100ms);
    const call_id call = renew(claims_);
    EXPECT_EQ(count_sent(command_kind::top_up), 3U);
    pass(100ms);
    deliver_top_ups();
    EXPECT_EQ(count_sent(command_kind::renew), 5U) << "no second one";
    EXPECT_EQ(failure_of(call), errc::no_quorum);
}

TEST_F(upgrade, release_requested_meanwhile_then_no_second_renewal) {
    hold(command_kind::release);
    const call_id call = renew(claims_);
    release(claims_);
    deliver_top_ups();
    EXPECT_EQ(count_sent(command_kind::renew), 5U)
        << "no second one, which would put the lease back where it is missing";
    EXPECT_EQ(failure_of(call), errc::no_quorum);
}

TEST_F(upgrade, is_refused_after_release_here) {
    EXPECT_TRUE(succeeded(release(claims_)));
    expect_refusal(claims_);
}

TEST_F(upgrade, is_refused_after_release_found_lease_lost) {
    set_reply(command_kind::release, every_node, status_reply(reply_status::lost));
    EXPECT_EQ(failure_of(release(claims_)), errc::lease_lost);
    expect_refusal(claims_);
}

TEST_F(upgrade, is_refused_after_revocation_here) {
    EXPECT_TRUE(succeeded(revoke(claims_)));
    expect_refusal(claims_);
}

TEST_F(upgrade, is_refused_after_message_that_lease_ended) {
    step(input::lease_ended{node(0), claims_.attempt_id, "r"});
    expect_refusal(claims_);
}

TEST_F(upgrade, is_done_for_a_hold_that_is_left) {
    const lease_claims released = claims_;
    claims_.hold = hold_id::from_bits(77);
    node_reply other_left = ok(0);
    other_left.text = std::string(claims_.hold.str()) + "\n\n";
    set_reply(command_kind::release, every_node, other_left);
    EXPECT_TRUE(succeeded(release(released)));
    expect_success(claims_);
}

TEST_F(upgrade, is_done_after_release_of_unknown_outcome) {
    const lease_claims released = claims_;
    claims_.hold = hold_id::from_bits(77);
    set_reply(command_kind::release, restarted, status_reply(reply_status::error));
    EXPECT_EQ(failure_of(release(released)), errc::no_quorum);
    expect_success(claims_);
}

}  // namespace
}  // namespace lockcore
