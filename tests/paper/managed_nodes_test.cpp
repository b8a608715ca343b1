// Rules of docs/protocol.md that only the whole lock_manager can keep or break: R6's last look at the clock, R8's epoch
// and quarantine, R9's connections. Real Redis nodes are paused, killed and given back what they had on disk.
#include <lockcore/hmac_sha256.hpp>
#include <lockcore/lock_manager.hpp>

#include <support/lock_host.hpp>
#include "paper/played_nodes.hpp"

#include <gtest/gtest.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/use_future.hpp>

#include <atomic>
#include <future>
#include <mutex>
#include <set>
#include <thread>

namespace lockcore {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using fencegate::testing::memory_register;
using fencegate::testing::played_node;
using fencegate::testing::redis_nodes;

struct no_history final : event_observer {
    void on_event(event) override {}
};

/// A manager on one thread, and three nodes.
class managed_nodes : public ::testing::Test {
  protected:
    static constexpr milliseconds max_ttl{2'000};

    managed_nodes() : managed_nodes(milliseconds{3'600'000}) {}
    explicit managed_nodes(milliseconds max_hold) {
        config cfg = servers_.config();
        cfg.max_hold = max_hold;
        cfg.max_ttl = max_ttl;
        cfg.default_ttl = 1s;
        manager_ = std::make_unique<lock_manager>(cfg, std::vector<asio::io_context*>{&io_},
                                                  lock_manager::dependencies{epochs_, mac_, events_});
        thread_ = std::thread([this] { io_.run(); });
        manager_->start();
        EXPECT_TRUE(eventually([&] { return voting() == servers_.size(); }));
    }
    ~managed_nodes() override {
        manager_->stop();
        guard_.reset();
        io_.stop();
        thread_.join();
        manager_.reset();
    }

    template <class Condition>
    static bool eventually(Condition condition) {
        const auto until = std::chrono::steady_clock::now() + 15s;
        while (!condition()) {
            if (std::chrono::steady_clock::now() > until) return false;
            // Between two looks.
            std::this_thread::sleep_for(2ms);
        }
        return true;
    }
    node_state state(std::size_t node) const { return manager_->nodes()[node].state; }
    std::size_t voting() const {
        const auto all = manager_->nodes();
        return static_cast<std::size_t>(
            std::count_if(all.begin(), all.end(), [](const node_status& n) { return n.state == node_state::voting; }));
    }
    std::future<result<lease>> begin_acquire(milliseconds ttl, std::vector<std::string> names = {"inventory/sku-1"},
                                             milliseconds wait = milliseconds{0}, std::string owner = {}) {
        acquire_request r;
        for (const std::string& name : names)
            r.resources.push_back(*resource_name::parse(name));
        r.by = {"tests", std::move(owner)};
        r.ttl = ttl;
        r.wait = wait;
        return asio::co_spawn(io_, manager_->acquire(std::move(r)), asio::use_future);
    }
    result<lease> acquire(milliseconds ttl) { return begin_acquire(ttl).get(); }
    template <class T>
    T run(asio::awaitable<T> work) {
        return asio::co_spawn(io_, std::move(work), asio::use_future).get();
    }
    /// The nodes were let in under different epochs; from here on they count alike, and every node is stamped.
    void agree_on_counters() {
        for (std::size_t n = 0; n < servers_.size(); ++n)
            look_at(n).set_counter(sku, 3 * tokens_per_epoch + 5);
    }
    played_node look_at(std::size_t node) const {
        played_node n(servers_.config().nodes[node].port);
        n.connect();
        return n;
    }

    const std::string sku = "inventory/sku-1";
    redis_nodes servers_{3};
    memory_register epochs_;
    hmac_sha256 mac_{std::string(32, 'k')};
    no_history events_;
    asio::io_context io_{1};
    std::optional<asio::executor_work_guard<asio::io_context::executor_type>> guard_{io_.get_executor()};
    std::unique_ptr<lock_manager> manager_;
    std::thread thread_;
};

// R6: tested last, just before answering; none left is no grant.
TEST_F(managed_nodes, r6_grants_nothing_when_the_nodes_answer_later_than_the_lease_would_last) {
    for (std::size_t n = 0; n < 3; ++n)
        servers_.pause(n);
    auto outcome = begin_acquire(100ms);  // node_timeout is 200 ms: the answers still count
    // Real time: longer than the lease.
    std::this_thread::sleep_for(130ms);
    for (std::size_t n = 0; n < 3; ++n)
        servers_.resume(n);
    const auto late = outcome.get();
    ASSERT_FALSE(late) << "validity " << late->validity.count() << " ms";
    EXPECT_EQ(late.error().code, errc::no_quorum);
    EXPECT_TRUE(eventually([&] { return servers_.lease_keys(0) == 0; }));
    EXPECT_TRUE(acquire(1s)) << "and the next one is granted";
}

// R6: a node's timeout bounds its silence, not that of the gateway.
TEST_F(managed_nodes, r6_waits_for_its_nodes_when_it_stood_still_itself) {
    for (std::size_t n = 0; n < 3; ++n)
        servers_.pause(n);
    auto outcome = begin_acquire(2s);
    asio::post(io_, [this] {
        // Real time: node_timeout is 200 ms, and the thread that counts it stands still for longer.
        std::this_thread::sleep_for(600ms);
        for (std::size_t n = 0; n < 3; ++n)
            servers_.resume(n);
    });
    EXPECT_TRUE(outcome.get());
}

// R7: after a failed attempt, to every node that may have taken it, on the connection that carried R1.
TEST_F(managed_nodes, r7_leaves_no_key_behind_when_an_attempt_fails_before_its_nodes_answer) {
    for (std::size_t n = 0; n < 3; ++n)
        servers_.pause(n);
    const auto none = acquire(2s);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, errc::no_quorum);
    for (std::size_t n = 0; n < 3; ++n)
        servers_.resume(n);
    EXPECT_TRUE(eventually([&] { return voting() == 3; }));
    // Real time: ACQUIRE and its undo wait in each node's socket; both are through before this connection's own
    // question.
    std::this_thread::sleep_for(50ms);
    for (std::size_t n = 0; n < 3; ++n)
        EXPECT_EQ(servers_.lease_keys(n), 0U) << n;
}

// R8: a node that may have forgotten is readmitted only when max_ttl has passed.
TEST_F(managed_nodes, r8_a_node_that_forgot_leases_votes_only_after_all_of_them_have_run_out) {
    const auto held = acquire(max_ttl);
    ASSERT_TRUE(held);
    const auto killed_at = std::chrono::steady_clock::now();
    for (const std::size_t n : {0U, 1U}) {
        servers_.kill(n);
        servers_.start(n);
    }
    const auto restarted_by = std::chrono::steady_clock::now();
    ASSERT_TRUE(eventually([&] { return state(0) == node_state::quarantined && state(1) == node_state::quarantined; }));
    EXPECT_EQ(acquire(1s).error().code, errc::no_quorum) << "a majority forgot the lease, and it still runs";
    ASSERT_TRUE(eventually([&] { return voting() == 3; }));
    EXPECT_GE(std::chrono::steady_clock::now() - killed_at, max_ttl);
    EXPECT_LE(std::chrono::steady_clock::now() - restarted_by, max_ttl + 5s);
    const auto next = acquire(1s);
    ASSERT_TRUE(next);
    EXPECT_GT(next->claims.token, held->claims.token);
}

// R9, and the row "R9 (replayed request, AOF)": A has 1 on n0, n1; n1 restarts without A's write but with its old
// fg:node; a replayed request passes there, for the old run id is what the record says. So nothing is sent again.
TEST_F(managed_nodes, r9_a_request_in_flight_is_never_sent_again_when_the_node_returns_with_its_old_record) {
    played_node before = look_at(0);
    const std::string run = before.ask({"HGET", "fg:node", "run"}), base = before.ask({"HGET", "fg:node", "base"}),
                      marks = before.ask({"HGET", "fg:node", "marks"});
    servers_.pause(0);
    const auto held = acquire(max_ttl);  // by the two others; node 0 has the request in its socket
    ASSERT_TRUE(held);
    servers_.kill(0);
    servers_.start(0);
    played_node after = look_at(0);
    after.ask({"HSET", "fg:node", "run", run, "base", base, "marks", marks});
    ASSERT_TRUE(eventually([&] { return state(0) == node_state::voting; }));
    // Real time: what must not come is given time to come.
    std::this_thread::sleep_for(300ms);
    EXPECT_EQ(after.counter("inventory/sku-1"), "") << "no ACQUIRE ever ran in this process";
    EXPECT_EQ(servers_.lease_keys(0), 0U);
}

// The guard that R9 needs: the scripts alone can't tell a replayed request from a fresh one.
TEST_F(managed_nodes, r9_a_replayed_request_would_pass_the_scripts_so_only_the_connection_can_refuse_it) {
    played_node n(look_at(0));
    const std::string old_run = n.run_id(), base = n.ask({"HGET", "fg:node", "base"}),
                      marks = n.ask({"HGET", "fg:node", "marks"});
    servers_.kill(0);
    servers_.start(0);
    played_node again = look_at(0);
    again.ask({"HSET", "fg:node", "run", old_run, "base", base, "marks", marks});
    EXPECT_EQ(again.run_as(old_run, command_kind::acquire, fencegate::testing::call_of('b', {"x"})).status,
              reply_status::ok);
    EXPECT_EQ(again.run(command_kind::acquire, fencegate::testing::call_of('c', {"y"})).status,
              reply_status::not_admitted)
        << "a request built on the new connection is refused";
}

// TOP-UP: a lease on a bare majority is a thin one; renewal puts it back.
TEST_F(managed_nodes, top_up_puts_the_lease_back_on_a_node_that_lost_it_when_it_is_renewed) {
    agree_on_counters();
    const auto held = acquire(1s);
    ASSERT_TRUE(held);
    played_node n = look_at(0);
    ASSERT_TRUE(eventually([&] { return n.lease(sku) != ""; }));
    n.run_out(sku);
    ASSERT_TRUE(run(manager_->renew(held->claims, 1s, "")));
    EXPECT_TRUE(eventually([&] { return n.lease(sku) != ""; }));
    ASSERT_TRUE(run(manager_->release(held->claims, "")));
    EXPECT_TRUE(eventually([&] { return n.lease(sku) == ""; }));
}

// TOP-UP, only while a majority still renews.
TEST_F(managed_nodes, top_up_puts_nothing_back_when_a_majority_has_lost_the_lease) {
    agree_on_counters();
    const auto held = acquire(2s);
    ASSERT_TRUE(held);
    ASSERT_TRUE(eventually([&] { return servers_.lease_keys(0) + servers_.lease_keys(1) == 2; }));
    for (const std::size_t n : {0U, 1U})
        look_at(n).run_out(sku);
    EXPECT_EQ(run(manager_->renew(held->claims, 2s, "")).error().code, errc::lease_lost);
    // Real time: what must not come is given time to come.
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(servers_.lease_keys(0) + servers_.lease_keys(1), 0U);
}

// HAND-OVER: the one round ends the old lease and begins the next; the old nonce is never renewed afterwards.
TEST_F(managed_nodes, hand_over_gives_the_waiter_a_higher_token_and_ends_the_old_lease) {
    const auto held = acquire(2s);
    ASSERT_TRUE(held);
    auto waiting = begin_acquire(2s, {sku}, 5s);
    ASSERT_TRUE(eventually([&] { return manager_->waiters() == 1; }));
    const auto deletions = [&](std::size_t node) {
        const std::string stats = look_at(node).ask({"INFO", "commandstats"});
        const std::size_t at = stats.find("cmdstat_del:calls=");
        return at == std::string::npos ? std::string() : stats.substr(at, stats.find(',', at) - at);
    };
    const std::vector before{deletions(0), deletions(1), deletions(2)};
    const auto released = run(manager_->release(held->claims, ""));
    ASSERT_TRUE(released);
    EXPECT_EQ(released->holds_left, 0U);
    const auto next = waiting.get();
    ASSERT_TRUE(next);
    for (std::size_t n = 0; n < 3; ++n) {
        EXPECT_EQ(deletions(n), before[n]) << "in one round: the resource is never free in between";
    }
    EXPECT_GT(next->claims.token, held->claims.token);
    EXPECT_EQ(run(manager_->renew(held->claims, 2s, "")).error().code, errc::lease_lost);
    EXPECT_EQ(run(manager_->release(held->claims, "")).error().code, errc::lease_lost);
    EXPECT_TRUE(run(manager_->inspect(next->claims))) << "and the next holder's stands";
}

// RE-ENTRANT: the token may be given again while a majority holds it, and not afterwards.
TEST_F(managed_nodes, re_entrant_owner_gets_its_token_again_only_while_a_majority_holds_it) {
    agree_on_counters();
    const auto first = begin_acquire(2s, {sku}, 0ms, "worker-7").get();
    ASSERT_TRUE(first);
    const auto again = begin_acquire(2s, {sku}, 0ms, "worker-7").get();
    ASSERT_TRUE(again);
    EXPECT_EQ(again->claims.token, first->claims.token);
    EXPECT_EQ(again->hold_count, 2U);
    for (const auto& [hold, left] : {std::pair(first, 1U), std::pair(first, 1U), std::pair(again, 0U)}) {
        const auto released = run(manager_->release(hold->claims, ""));
        ASSERT_TRUE(released);
        EXPECT_EQ(released->holds_left, left);
    }
    const auto after = begin_acquire(2s, {sku}, 0ms, "worker-7").get();
    ASSERT_TRUE(after);
    EXPECT_GT(after->claims.token, first->claims.token);
}

// One node answered late and above the token: it has the lease, under a number that nobody was given (R4). Asked again
// it may answer first; which lease is the holder's must not depend on that. Before: the attempt gives up when a
// majority said "own", takes one of two that differ, and where it is the wrong one the holder is refused.
TEST_F(managed_nodes, re_entrant_owner_gets_its_token_again_although_one_node_has_a_higher_one) {
    agree_on_counters();
    look_at(0).set_counter(sku, 3 * tokens_per_epoch + 50);
    servers_.pause(0);
    const auto first = begin_acquire(2s, {sku}, 0ms, "worker-7").get();
    servers_.resume(0);
    ASSERT_TRUE(first);
    ASSERT_TRUE(eventually([&] { return look_at(0).token_of(sku) == std::to_string(3 * tokens_per_epoch + 51); }));
    for (int i = 0; i < 20; ++i) {
        const auto again = begin_acquire(2s, {sku}, 0ms, "worker-7").get();
        ASSERT_TRUE(again) << i << ": " << again.error().detail;
        EXPECT_EQ(again->claims.token, first->claims.token);
    }
}

// One of two holds is given back while somebody waits, and the nodes answer late: the hand-over fails, and the outer
// hold goes on. Before: where no node is known to have said "holds left", the lease is ended with all its holds,
// and the next one gets it within the time that its holder was promised.
TEST_F(managed_nodes, hand_over_leaves_the_outer_hold_when_the_nodes_answer_too_late) {
    agree_on_counters();
    const auto outer = begin_acquire(2s, {sku}, 0ms, "worker-7").get();
    ASSERT_TRUE(outer);
    const auto inner = begin_acquire(2s, {sku}, 0ms, "worker-7").get();
    ASSERT_TRUE(inner);
    ASSERT_EQ(inner->hold_count, 2U);
    const auto valid_until = std::chrono::steady_clock::now() + inner->validity;
    auto waiting = begin_acquire(2s, {sku}, 10s);
    ASSERT_TRUE(eventually([&] { return manager_->waiters() == 1; }));
    for (std::size_t n = 0; n < 3; ++n)
        servers_.pause(n);
    const auto released = run(manager_->release(inner->claims, ""));
    for (std::size_t n = 0; n < 3; ++n)
        servers_.resume(n);
    EXPECT_FALSE(released) << "not known";
    const auto next = waiting.get();
    ASSERT_TRUE(next);
    EXPECT_GE(std::chrono::steady_clock::now(), valid_until) << "two hold it at once";
}

struct short_holds : managed_nodes {
    short_holds() : managed_nodes(max_ttl) {}
};

// A hold that was refused was not counted, so there is nothing to take back. Before: a node that has not answered
// when most have refused is sent a RELEASE behind its HOLD; it refuses the HOLD too, and the RELEASE ends the lease
// there.
TEST_F(short_holds, re_entrant_owner_keeps_its_lease_on_every_node_when_another_hold_is_refused) {
    agree_on_counters();
    const auto first = begin_acquire(max_ttl, {sku}, 0ms, "worker-7").get();
    ASSERT_TRUE(first);
    ASSERT_TRUE(eventually([&] { return servers_.lease_keys(0) == 1; }));
    // Real time: so long it is held already.
    std::this_thread::sleep_for(20ms);
    servers_.pause(0);
    const auto refused = begin_acquire(max_ttl, {sku}, 0ms, "worker-7").get();
    servers_.resume(0);
    ASSERT_FALSE(refused);
    ASSERT_EQ(refused.error().code, errc::renewals_exhausted);
    // Real time: what must not go is given time to go.
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(servers_.lease_keys(0), 1U);
    EXPECT_EQ(servers_.lease_keys(1), 1U);
    EXPECT_EQ(servers_.lease_keys(2), 1U);
}

// SEVERAL RESOURCES: all or none, one token.
TEST_F(managed_nodes, several_resources_come_all_or_none_under_one_token_above_each_ones_last) {
    const auto one = begin_acquire(2s, {"orders/1"}).get();
    ASSERT_TRUE(one);
    EXPECT_EQ(begin_acquire(2s, {sku, "orders/1"}).get().error().code, errc::resource_locked);
    EXPECT_TRUE(eventually([&] { return servers_.lease_keys(0) == 1; })) << "nothing of it is left";
    ASSERT_TRUE(run(manager_->release(one->claims, "")));
    const auto both = begin_acquire(2s, {sku, "orders/1"}).get();
    ASSERT_TRUE(both);
    EXPECT_GT(both->claims.token, one->claims.token);
    EXPECT_EQ(begin_acquire(2s, {"orders/1"}).get().error().code, errc::resource_locked);
    ASSERT_TRUE(run(manager_->release(both->claims, "")));
    for (const char* each : {"inventory/sku-1", "orders/1"}) {
        const auto later = begin_acquire(2s, {each}).get();
        ASSERT_TRUE(later);
        EXPECT_GT(later->claims.token, both->claims.token) << each;
    }
}

// Listing: as many nodes are walked as share one with every majority.
TEST_F(managed_nodes, list_finds_every_lease_on_a_majority_whichever_node_lacks_it) {
    agree_on_counters();
    const auto held = acquire(2s);
    ASSERT_TRUE(held);
    ASSERT_TRUE(eventually(
        [&] { return servers_.lease_keys(0) == 1 && servers_.lease_keys(1) == 1 && servers_.lease_keys(2) == 1; }));
    for (std::size_t lacking = 0; lacking < 3; ++lacking) {
        const std::string record = look_at(lacking).lease(sku);
        look_at(lacking).run_out(sku);
        const auto page = run(manager_->list({}));
        ASSERT_TRUE(page);
        ASSERT_EQ(page->leases.size(), 1U) << "node " << lacking;
        EXPECT_EQ(page->leases.front().claims.token, held->claims.token);
        look_at(lacking).ask({"SET", "fg:lease:" + sku, record, "PX", "2000"});
    }
    for (const std::size_t n : {0U, 1U})
        look_at(n).run_out(sku);
    const auto page = run(manager_->list({}));
    ASSERT_TRUE(page);
    EXPECT_TRUE(page->leases.empty()) << "one node is no majority";
}

}  // namespace
}  // namespace lockcore
