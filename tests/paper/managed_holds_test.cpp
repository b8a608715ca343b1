// Rules of docs/protocol.md about holds that need the whole lock_manager: RE-ENTRANT, CLOSE,
// HAND-OVER with other holds. The nodes are real.
#include "paper/managed_nodes.hpp"

namespace lockcore {
namespace {

class managed_holds : public managed_nodes {
  protected:
    using managed_nodes::managed_nodes;
    result<lease> acquire_as_owner(milliseconds ttl = 2s, std::string key = {}) {
        return start_acquire(ttl, {sku}, 0ms, "worker-7", std::move(key)).get();
    }
};

// RE-ENTRANT: the same token is given again only while a majority holds it.
TEST_F(managed_holds, re_entrant_owner_gets_token_again_while_majority_holds_it) {
    align_counters();
    const auto first = acquire_as_owner(), again = acquire_as_owner();
    ASSERT_TRUE(first && again);
    EXPECT_EQ(again->claims.token, first->claims.token);
    EXPECT_EQ(again->hold_count, 2U);
    for (const auto& [hold, left] : {std::pair(first, 1U), std::pair(first, 1U), std::pair(again, 0U)}) {
        const auto released = run(manager_->release(hold->claims, ""));
        ASSERT_TRUE(released);
        EXPECT_EQ(released->holds_left, left);
    }
    const auto after = acquire_as_owner();
    ASSERT_TRUE(after);
    EXPECT_GT(after->claims.token, first->claims.token);
}

// CLOSE: a release with a seal is repeated before it is done. One that fails does not open the lease for the others.
TEST_F(managed_holds, closed_lease_stays_closed_when_a_repeated_release_fails) {
    const auto held = acquire_as_owner();
    ASSERT_TRUE(held);
    std::vector<close_outcome> closed;
    for (int i = 0; i < 8; ++i) {
        const auto done = run(manager_->close_to_new_holds(held->claims));
        ASSERT_TRUE(done) << done.error().detail;
        ASSERT_TRUE(done->closed);
        closed.push_back(*done);
    }
    while (!closed.empty()) {
        EXPECT_EQ(acquire_as_owner().error().code, errc::resource_locked);
        manager_->reopen(held->claims, closed.back());
        closed.pop_back();
    }
    EXPECT_TRUE(eventually([&] { return bool(acquire_as_owner()); }));
}

TEST_F(managed_holds, closed_lease_is_not_answered_to_a_repeated_request) {
    const auto repeat = [this] { return acquire_as_owner(2s, "key"); };
    const auto held = repeat();
    ASSERT_TRUE(held);
    const auto closed = run(manager_->close_to_new_holds(held->claims));
    ASSERT_TRUE(closed && closed->closed);
    EXPECT_EQ(repeat().error().code, errc::resource_locked) << "its token may be sealed";
    manager_->reopen(held->claims, *closed);
    EXPECT_TRUE(eventually([&] {
        const auto again = repeat();
        return again && again->repeated && again->id == held->id;
    }));
}

// One node answered late with a higher token that no caller was given (R4). In a later attempt it may answer first,
// which must not decide which lease is the holder's: otherwise the holder could be refused.
TEST_F(managed_holds, re_entrant_owner_gets_token_although_one_node_has_higher) {
    align_counters();
    connect_to(0).set_counter(sku, 3 * tokens_per_epoch + 50);
    servers_.pause(0);
    const auto first = acquire_as_owner();
    servers_.resume(0);
    ASSERT_TRUE(first);
    ASSERT_TRUE(eventually([&] { return connect_to(0).token_of(sku) == std::to_string(3 * tokens_per_epoch + 51); }));
    for (int i = 0; i < 20; ++i) {
        const auto again = acquire_as_owner();
        ASSERT_TRUE(again) << i << ": " << again.error().detail;
        EXPECT_EQ(again->claims.token, first->claims.token);
    }
}

// One of two holds is released while another caller waits, and the nodes answer too late: the hand-over fails, and the
// other hold stays. A release of the lease with all holds, because no node reports that holds are left, would grant it
// to the waiter within the validity of the other hold.
TEST_F(managed_holds, hand_over_keeps_other_hold_when_nodes_answer_too_late) {
    align_counters();
    const auto outer = acquire_as_owner(), inner = acquire_as_owner();
    ASSERT_TRUE(outer && inner);
    ASSERT_EQ(inner->hold_count, 2U);
    const auto valid_until = std::chrono::steady_clock::now() + inner->validity;
    auto waiting = start_acquire(2s, {sku}, 10s);
    ASSERT_TRUE(eventually([&] { return manager_->waiters() == 1; }));
    for (std::size_t n = 0; n < 3; ++n)
        servers_.pause(n);
    const auto released = run(manager_->release(inner->claims, ""));
    for (std::size_t n = 0; n < 3; ++n)
        servers_.resume(n);
    EXPECT_FALSE(released) << "the outcome is unknown";
    const auto next = waiting.get();
    ASSERT_TRUE(next);
    EXPECT_GE(std::chrono::steady_clock::now(), valid_until) << "two callers hold it at once";
}

struct short_holds : managed_holds {
    short_holds() : managed_holds(max_ttl) {}
};

// A refused hold was not added, so there is nothing to undo: RELEASE after HOLD, sent to a node that has not answered
// yet and refuses the HOLD, would delete the lease there.
TEST_F(short_holds, re_entrant_owner_keeps_lease_when_another_hold_is_refused) {
    align_counters();
    const auto first = acquire_as_owner(max_ttl);
    ASSERT_TRUE(first);
    ASSERT_TRUE(eventually([&] { return servers_.lease_keys(0) == 1; }));
    // Real time: the lease is held for this long already, so a hold for max_ttl exceeds max_hold.
    std::this_thread::sleep_for(20ms);
    servers_.pause(0);
    const auto refused = acquire_as_owner(max_ttl);
    servers_.resume(0);
    ASSERT_FALSE(refused);
    ASSERT_EQ(refused.error().code, errc::renewals_exhausted);
    // Real time: a wrong deletion would happen within this time.
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(servers_.lease_keys(0), 1U);
    EXPECT_EQ(servers_.lease_keys(1), 1U);
    EXPECT_EQ(servers_.lease_keys(2), 1U);
}

}  // namespace
}  // namespace lockcore
