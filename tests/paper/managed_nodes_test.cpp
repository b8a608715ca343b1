// Rules of docs/protocol.md that need the whole lock_manager: the final test of the validity (R6), epoch and quarantine
// (R8), connections (R9). Real Redis nodes are paused, killed, and restarted with the data that their disk would have.
#include "paper/managed_nodes.hpp"

namespace lockcore {
namespace {

// R6: the validity is tested just before the answer; without any left there is no grant.
TEST_F(managed_nodes, r6_grants_nothing_when_replies_exceed_the_validity) {
    for (std::size_t n = 0; n < 3; ++n)
        servers_.pause(n);
    auto outcome = start_acquire(100ms);  // node_timeout is 200 ms: the answers still count
    // Real time: longer than the lease.
    std::this_thread::sleep_for(130ms);
    for (std::size_t n = 0; n < 3; ++n)
        servers_.resume(n);
    const auto late = outcome.get();
    ASSERT_FALSE(late) << "validity " << late->validity.count() << " ms";
    EXPECT_EQ(late.error().code, errc::no_quorum);
    EXPECT_TRUE(eventually([&] { return servers_.lease_keys(0) == 0; }));
    EXPECT_TRUE(acquire(1s)) << "the next request is granted";
}

// R6: the node timeout limits the time that a node needs, not the time for which the gateway's own thread is blocked.
TEST_F(managed_nodes, r6_node_timeout_excludes_time_the_gateway_was_blocked) {
    for (std::size_t n = 0; n < 3; ++n)
        servers_.pause(n);
    auto outcome = start_acquire(2s);
    asio::post(io_, [this] {
        // Real time: blocks the manager's thread for longer than node_timeout, which is 200 ms.
        std::this_thread::sleep_for(600ms);
        for (std::size_t n = 0; n < 3; ++n)
            servers_.resume(n);
    });
    EXPECT_TRUE(outcome.get());
}

// R7: after a failed attempt RELEASE goes to every node that may have granted it, on the connection
// that carried ACQUIRE.
TEST_F(managed_nodes, r7_leaves_no_key_of_attempt_that_failed_before_replies) {
    for (std::size_t n = 0; n < 3; ++n)
        servers_.pause(n);
    const auto none = acquire(2s);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, errc::no_quorum);
    for (std::size_t n = 0; n < 3; ++n)
        servers_.resume(n);
    EXPECT_TRUE(eventually([&] { return voting_count() == 3; }));
    // Real time: each resumed node first executes the ACQUIRE and its undo from its socket.
    std::this_thread::sleep_for(50ms);
    for (std::size_t n = 0; n < 3; ++n)
        EXPECT_EQ(servers_.lease_keys(n), 0U) << n;
}

// R8: a node that may have forgotten is readmitted only when max_ttl has passed.
TEST_F(managed_nodes, r8_a_node_that_forgot_votes_only_after_old_leases_expired) {
    const auto held = acquire(max_ttl);
    ASSERT_TRUE(held);
    const auto killed_at = std::chrono::steady_clock::now();
    for (const std::size_t n : {0U, 1U}) {
        servers_.kill(n);
        servers_.start(n);
    }
    ASSERT_TRUE(eventually([&] { return state(0) == node_state::quarantined && state(1) == node_state::quarantined; }));
    EXPECT_EQ(acquire(1s).error().code, errc::no_quorum) << "a majority lost the lease, which is still valid";
    ASSERT_TRUE(eventually([&] { return voting_count() == 3; }));
    EXPECT_GE(std::chrono::steady_clock::now() - killed_at, max_ttl);
    const auto next = acquire(1s);
    ASSERT_TRUE(next);
    EXPECT_GT(next->claims.token, held->claims.token);
}

// R9 (replayed request, AOF): A has 1 on n0, n1; n1 restarts without A's write but with its old fg:node. A replayed
// request would pass there, because the record has the old run id. So no request is sent again.
TEST_F(managed_nodes, r9_a_request_in_flight_is_not_resent_to_restarted_node) {
    node_client before = connect_to(0);
    const std::string run = before.command({"HGET", "fg:node", "run"}),
                      base = before.command({"HGET", "fg:node", "base"}),
                      marks = before.command({"HGET", "fg:node", "marks"});
    servers_.pause(0);
    const auto held = acquire(max_ttl);  // by the two others; node 0 has the request in its socket
    ASSERT_TRUE(held);
    servers_.kill(0);
    servers_.start(0);
    node_client after = connect_to(0);
    after.command({"HSET", "fg:node", "run", run, "base", base, "marks", marks});
    ASSERT_TRUE(eventually([&] { return state(0) == node_state::voting; }));
    // Real time: a wrong request would arrive within this time.
    std::this_thread::sleep_for(300ms);
    EXPECT_EQ(after.counter("inventory/sku-1"), "") << "no ACQUIRE ever ran in this process";
    EXPECT_EQ(servers_.lease_keys(0), 0U);
}

// Why R9 is needed: the scripts cannot distinguish a replayed request from a new one; only the connection can.
TEST_F(managed_nodes, r9_a_replayed_request_passes_the_scripts) {
    node_client n(connect_to(0));
    const std::string old_run = n.run_id(), base = n.command({"HGET", "fg:node", "base"}),
                      marks = n.command({"HGET", "fg:node", "marks"});
    servers_.kill(0);
    servers_.start(0);
    node_client again = connect_to(0);
    again.command({"HSET", "fg:node", "run", old_run, "base", base, "marks", marks});
    EXPECT_EQ(again.run_as(old_run, command_kind::acquire, fencegate::testing::call_of('b', {"x"})).status,
              reply_status::ok);
    EXPECT_EQ(again.run(command_kind::acquire, fencegate::testing::call_of('c', {"y"})).status,
              reply_status::not_admitted)
        << "a request built on the new connection is refused";
}

// TOP-UP: a renewal puts the lease back on nodes that lost it.
TEST_F(managed_nodes, top_up_puts_the_lease_back_on_a_node_that_lost_it) {
    align_counters();
    const auto held = acquire(1s);
    ASSERT_TRUE(held);
    node_client n = connect_to(0);
    ASSERT_TRUE(eventually([&] { return n.lease(sku) != ""; }));
    n.expire_lease(sku);
    ASSERT_TRUE(run(manager_->renew(held->claims, 1s, "")));
    EXPECT_TRUE(eventually([&] { return n.lease(sku) != ""; }));
    ASSERT_TRUE(run(manager_->release(held->claims, "")));
    EXPECT_TRUE(eventually([&] { return n.lease(sku) == ""; }));
}

// TOP-UP only while a majority still holds the lease.
TEST_F(managed_nodes, top_up_puts_nothing_back_when_a_majority_has_lost_the_lease) {
    align_counters();
    const auto held = acquire(2s);
    ASSERT_TRUE(held);
    ASSERT_TRUE(eventually([&] { return servers_.lease_keys(0) + servers_.lease_keys(1) == 2; }));
    for (const std::size_t n : {0U, 1U})
        connect_to(n).expire_lease(sku);
    EXPECT_EQ(run(manager_->renew(held->claims, 2s, "")).error().code, errc::lease_lost);
    // Real time: a wrong request would arrive within this time.
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(servers_.lease_keys(0) + servers_.lease_keys(1), 0U);
}

// HAND-OVER: one round releases the old lease and acquires the next; the old nonce is never renewed afterwards.
TEST_F(managed_nodes, hand_over_gives_waiter_higher_token_and_ends_old_lease) {
    const auto deletions = [&] {
        std::vector<std::string> out;
        for (std::size_t n = 0; n < 3; ++n) {
            const std::string stats = connect_to(n).command({"INFO", "commandstats"});
            const std::size_t at = stats.find("cmdstat_del:calls=");
            out.push_back(at == std::string::npos ? std::string() : stats.substr(at, stats.find(',', at) - at));
        }
        return out;
    };
    bool is_overwritten = false;
    // Nothing is handed over to a waiter during an attempt of its own, so a release may meet one.
    for (int tries = 0; tries < 5 && !is_overwritten; ++tries) {
        const auto held = acquire(2s);
        ASSERT_TRUE(held);
        const auto before = deletions();
        auto waiting = start_acquire(2s, {sku}, 5s);
        for (std::size_t n = 0; n < 3; ++n) {
            auto node = connect_to(n);
            ASSERT_TRUE(eventually([&] { return node.lease(sku).find('\1') != std::string::npos; })) << "its wake mark";
        }
        // By now its attempts are 125 to 250 ms apart.
        std::this_thread::sleep_for(600ms);
        ASSERT_TRUE(run(manager_->renew(held->claims, 2s, "")));
        const auto released = run(manager_->release(held->claims, ""));
        ASSERT_TRUE(released);
        EXPECT_EQ(released->holds_left, 0U);
        const auto next = waiting.get();
        ASSERT_TRUE(next);
        is_overwritten = deletions() == before;
        EXPECT_GT(next->claims.token, held->claims.token);
        EXPECT_EQ(run(manager_->renew(held->claims, 2s, "")).error().code, errc::lease_lost);
        EXPECT_EQ(run(manager_->release(held->claims, "")).error().code, errc::lease_lost);
        EXPECT_TRUE(run(manager_->inspect(next->claims))) << "the lease of the next holder lives";
        ASSERT_TRUE(run(manager_->release(next->claims, "")));
    }
    EXPECT_TRUE(is_overwritten) << "the lease is never deleted, so the resource is never free in between";
}

// SEVERAL RESOURCES: all or none, with one token.
TEST_F(managed_nodes, several_resources_all_or_none_under_one_higher_token) {
    const auto single = start_acquire(2s, {"orders/1"}).get();
    ASSERT_TRUE(single);
    EXPECT_EQ(start_acquire(2s, {sku, "orders/1"}).get().error().code, errc::resource_locked);
    EXPECT_TRUE(eventually([&] { return servers_.lease_keys(0) == 1; })) << "the refused request left no key";
    ASSERT_TRUE(run(manager_->release(single->claims, "")));
    const auto both = start_acquire(2s, {sku, "orders/1"}).get();
    ASSERT_TRUE(both);
    EXPECT_GT(both->claims.token, single->claims.token);
    EXPECT_EQ(start_acquire(2s, {"orders/1"}).get().error().code, errc::resource_locked);
    ASSERT_TRUE(run(manager_->release(both->claims, "")));
    for (const char* each : {"inventory/sku-1", "orders/1"}) {
        const auto later = start_acquire(2s, {each}).get();
        ASSERT_TRUE(later);
        EXPECT_GT(later->claims.token, both->claims.token) << each;
    }
}

// Listing searches so many nodes that every majority has one of them.
TEST_F(managed_nodes, list_finds_every_lease_on_a_majority_whichever_node_lacks_it) {
    align_counters();
    const auto held = acquire(2s);
    ASSERT_TRUE(held);
    ASSERT_TRUE(eventually(
        [&] { return servers_.lease_keys(0) == 1 && servers_.lease_keys(1) == 1 && servers_.lease_keys(2) == 1; }));
    for (std::size_t lacking = 0; lacking < 3; ++lacking) {
        const std::string record = connect_to(lacking).lease(sku);
        connect_to(lacking).expire_lease(sku);
        const auto page = run(manager_->list_leases({}));
        ASSERT_TRUE(page);
        ASSERT_EQ(page->leases.size(), 1U) << "node " << lacking;
        EXPECT_EQ(page->leases.front().claims.token, held->claims.token);
        connect_to(lacking).command({"SET", "fg:lease:" + sku, record, "PX", "2000"});
    }
    for (const std::size_t n : {0U, 1U})
        connect_to(n).expire_lease(sku);
    const auto page = run(manager_->list_leases({}));
    ASSERT_TRUE(page);
    EXPECT_TRUE(page->leases.empty()) << "one node is no majority";
}

// STORAGE GENERATION: when the change is finished all tokens are above the floor, not before, and a lease lives on.
TEST_F(managed_nodes, announced_floor_is_below_all_later_tokens) {
    const auto held = acquire(2s);
    ASSERT_TRUE(held);
    const floor_announcement announced = announce(2'048, 'a');
    EXPECT_TRUE(announced.by_majority);
    EXPECT_EQ(announced.too_close, epoch{});
    const auto renewed = run(manager_->renew(held->claims, 2s, {}));
    ASSERT_TRUE(renewed);
    EXPECT_EQ(renewed->claims.token, held->claims.token);
    ASSERT_TRUE(run(manager_->release(held->claims, {})));
    const auto before = acquire(1s);
    EXPECT_LT(value_of(before->claims.token), 2'048 * tokens_per_epoch);
    ASSERT_TRUE(run(manager_->release(before->claims, {})));
    manager_->raise_hints(epoch{2'048});
    EXPECT_GT(value_of(acquire(1s)->claims.token), 2'048 * tokens_per_epoch);
}

TEST_F(managed_nodes, announced_floor_is_taken_if_every_node_has_it) {
    for (std::size_t n = 0; n < 3; ++n) {
        servers_.kill(n);
        servers_.start(n);
    }
    ASSERT_TRUE(eventually([&] { return state(0) == state(1) && state(1) == state(2) && voting_count() == 0; }));
    floor_announcement announced;
    ASSERT_TRUE(eventually([&] { return (announced = announce(1'024, 'a')).by_all; }));
    EXPECT_FALSE(announced.by_majority) << "no node is admitted";
}

TEST_F(managed_nodes, announced_floor_is_taken_once_the_floors_of_others_were_seen) {
    ASSERT_EQ(connect_to(0).announce(2'000, "b") + connect_to(1).announce(2'000, "b"), "ADMITTEDADMITTED");
    EXPECT_TRUE(!announce(4'000, 'a').by_majority && announce(4'000, 'a').by_majority) << "its answers named them";
}

TEST_F(managed_nodes, announced_floor_needs_a_majority_and_no_higher_epoch) {
    ASSERT_EQ(connect_to(0).announce(2'000, "b"), "ADMITTED");
    EXPECT_EQ(announce(1'024, 'a').too_close, epoch{2'000});
    for (const std::size_t n : {0U, 1U})
        servers_.pause(n);
    EXPECT_FALSE(announce(3'024, 'c').by_majority);
    for (const std::size_t n : {0U, 1U})
        servers_.resume(n);
}

}  // namespace
}  // namespace lockcore
