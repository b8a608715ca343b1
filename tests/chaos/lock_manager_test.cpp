// Tests lock_manager with real Redis servers that are killed, paused and restarted, on one thread and on two.
#include <support/lock_host.hpp>
#include <support/redis_nodes.hpp>

#include <gtest/gtest.h>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

namespace lockcore {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using namespace fencegate::testing;

using clock = std::chrono::steady_clock;

/// So short that a quarantine ends within a test, and so long that a lease outlives a pause of a busy machine.
constexpr milliseconds longest_ttl = 2500ms;
/// The time after which a node that does not answer is disconnected.
constexpr milliseconds node_dead_after = 6s;

class lock_manager_test : public ::testing::TestWithParam<unsigned> {
  protected:
    lock_manager_test() : host_(settings(nodes_), epochs_, GetParam()) {
        EXPECT_TRUE(eventually([&] { return voting_count() == nodes_.size(); }));
    }
    static config settings(const redis_nodes& nodes) {
        config cfg = nodes.config();
        cfg.max_ttl = longest_ttl;
        cfg.default_ttl = longest_ttl;
        // So that a busy machine does not make a node seem slow.
        cfg.node_timeout = 1500ms;
        cfg.node_dead_after = node_dead_after;
        cfg.answer_bound = 2s;
        return cfg;
    }
    std::size_t voting_count() const { return host_.voting_count(); }
    static acquire_request request(const std::string& resource, milliseconds ttl = longest_ttl,
                                   milliseconds wait = 0ms) {
        return make_request({resource}, ttl, wait);
    }
    template <class T>
    T run(asio::awaitable<T> work) {
        return host_.run(std::move(work));
    }
    result<lease> acquire(const std::string& resource, milliseconds ttl = longest_ttl, milliseconds wait = 0ms) {
        return host_.acquire(request(resource, ttl, wait));
    }
    result<release_outcome> release(const lease& l) { return host_.release(l); }

    redis_nodes nodes_{5};
    memory_register epochs_;
    lock_host host_;
    lock_manager* manager_ = &host_.manager();
    counting_observer& observer_ = host_.observer;
};

INSTANTIATE_TEST_SUITE_P(threads, lock_manager_test, ::testing::Values(1U, 2U));

TEST_P(lock_manager_test, acquire_grants_one_caller_at_a_time_with_growing_tokens) {
    const auto began = clock::now();
    const auto a = acquire("inventory/sku-1");
    ASSERT_TRUE(a) << a.error().detail;
    EXPECT_GE(a->validity, longest_ttl - 30ms - (clock::now() - began)) << "less 1 % + 2 ms for clock drift";
    const auto b = acquire("inventory/sku-1");
    ASSERT_FALSE(b);
    EXPECT_EQ(b.error().code, errc::resource_locked);
    EXPECT_GT(b.error().remaining, 0ms);
    ASSERT_TRUE(release(*a));
    const auto c = acquire("inventory/sku-1");
    ASSERT_TRUE(c) << c.error().detail;
    EXPECT_GT(c->claims.token, a->claims.token);
}

TEST_P(lock_manager_test, expired_lease_is_lost_for_every_operation) {
    // Waits, which repeats an attempt that takes longer than so short a ttl.
    const auto a = acquire("inventory/sku-1", 300ms, 10s);
    ASSERT_TRUE(a) << a.error().detail;
    // Real time: longer than the ttl.
    std::this_thread::sleep_for(400ms);
    EXPECT_EQ(run(manager_->renew(a->claims, longest_ttl, "")).error().code, errc::lease_lost);
    // A node that was not needed for the grant may have the lease a little longer; a renewed one would outlive 2 s.
    EXPECT_TRUE(eventually([&] { return nodes_.lease_keys(0) == 0; }, 2s))
        << "a renewal must not create the lease again";
    EXPECT_EQ(run(manager_->inspect(a->claims)).error().code, errc::lease_lost);
    EXPECT_EQ(release(*a).error().code, errc::lease_lost);
}

TEST_P(lock_manager_test, renewal_keeps_the_token) {
    const auto a = acquire("inventory/sku-1", 2s);
    ASSERT_TRUE(a) << a.error().detail;
    for (int i = 0; i < 4; ++i) {
        // Real time: three of them are longer than the ttl of the grant.
        if (i > 0) std::this_thread::sleep_for(700ms);
        const auto renewed = run(manager_->renew(a->claims, longest_ttl, ""));
        ASSERT_TRUE(renewed) << renewed.error().detail;
        EXPECT_EQ(renewed->claims.token, a->claims.token);
        EXPECT_EQ(renewed->renewals_left, 999'999U - static_cast<unsigned>(i));
    }
}

TEST_P(lock_manager_test, waiters_are_granted_in_order_of_arrival) {
    const auto held = acquire("inventory/sku-1");
    ASSERT_TRUE(held) << held.error().detail;
    std::mutex mutex;
    std::vector<int> order;
    std::vector<std::future<void>> waiters;
    for (int i = 0; i < 6; ++i) {
        auto waiter = [](lock_manager& m, acquire_request r, int me, std::mutex& guard,
                         std::vector<int>& served) -> asio::awaitable<void> {
            auto mine = co_await m.acquire(std::move(r));
            if (!mine) co_return;
            {
                const std::lock_guard lock(guard);
                served.push_back(me);
            }
            (void)co_await m.release(mine->claims, "");
        };
        auto work = waiter(*manager_, request("inventory/sku-1", longest_ttl, 30s), i, mutex, order);
        waiters.push_back(asio::co_spawn(host_.io(), std::move(work), asio::use_future));
        ASSERT_TRUE(eventually([&] { return manager_->waiters() == static_cast<std::size_t>(i) + 1; }));
        ASSERT_TRUE(run(manager_->renew(held->claims, longest_ttl, ""))) << "all have to wait for this lease";
    }
    ASSERT_TRUE(release(*held));
    for (auto& w : waiters)
        w.get();
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

TEST_P(lock_manager_test, cancelled_waiter_leaves_no_queue_entry_and_no_key) {
    const auto held = acquire("inventory/sku-1");
    ASSERT_TRUE(held) << held.error().detail;
    auto cancellation = std::make_shared<asio::cancellation_signal>();
    std::promise<errc> outcome;
    asio::post(host_.io(), [&] {
        asio::co_spawn(host_.io(), manager_->acquire(request("inventory/sku-1", longest_ttl, 10s)),
                       asio::bind_cancellation_slot(
                           cancellation->slot(), [&](const std::exception_ptr& e, const result<lease>& r) {
                               outcome.set_value(e || r ? errc::invalid_argument : r.error().code);
                           }));
    });
    ASSERT_TRUE(eventually([&] { return manager_->waiters() == 1; }));
    asio::post(host_.io(), [cancellation] { cancellation->emit(asio::cancellation_type::terminal); });
    EXPECT_EQ(outcome.get_future().get(), errc::cancelled);
    ASSERT_TRUE(release(*held));
    const auto next = acquire("inventory/sku-1");
    ASSERT_TRUE(next) << "the queue is empty";
    ASSERT_TRUE(release(*next));
    EXPECT_TRUE(eventually([&] {
        for (std::size_t n = 0; n < nodes_.size(); ++n) {
            if (nodes_.lease_keys(n) != 0) return false;
        }
        return true;
    }));
}

TEST_P(lock_manager_test, acquire_works_without_two_of_five_nodes_but_not_three) {
    nodes_.pause(0);
    nodes_.kill(1);
    fencing_token last{};
    std::vector<clock::duration> took;
    for (int i = 0; i < 20; ++i) {
        const auto began = clock::now();
        const auto a = acquire("inventory/sku-1");
        ASSERT_TRUE(a) << a.error().detail;
        took.push_back(clock::now() - began);
        EXPECT_LT(took.back(), node_dead_after - 1s) << "does not wait until the paused node is disconnected";
        EXPECT_GT(a->claims.token, last);
        last = a->claims.token;
        ASSERT_TRUE(release(*a));
    }
    std::ranges::nth_element(took, took.begin() + 10);
    EXPECT_LT(took[10], 1s) << "does not wait for a timeout of the paused node";
    nodes_.kill(2);
    const auto none = acquire("inventory/sku-2");
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, errc::no_quorum);
    EXPECT_EQ(none.error().answers.size(), 5U);

    nodes_.resume(0);
    nodes_.start(1);
    nodes_.start(2);
    EXPECT_TRUE(eventually([&] { return voting_count() == 5; }, 20s))
        << "restarted nodes vote again after their quarantine";
    const auto after = acquire("inventory/sku-1");
    ASSERT_TRUE(after) << after.error().detail;
    EXPECT_GT(after->claims.token, last);
}

TEST_P(lock_manager_test, tokens_grow_although_all_nodes_lose_all_data) {
    fencing_token last{};
    for (int round = 0; round < 2; ++round) {
        const auto a = acquire("inventory/sku-1");
        ASSERT_TRUE(a) << a.error().detail;
        EXPECT_GT(a->claims.token, last);
        last = a->claims.token;
        for (std::size_t n = 0; n < nodes_.size(); ++n)
            nodes_.kill(n);
        // Before the start of the first node, whose quarantine may end before the last one has started.
        EXPECT_TRUE(eventually([&] { return voting_count() == 0; }));
        for (std::size_t n = 0; n < nodes_.size(); ++n)
            nodes_.start(n);
        ASSERT_TRUE(eventually([&] { return voting_count() == 5; }, 20s)) << "after the quarantine";
    }
    EXPECT_GT(acquire("inventory/sku-1").value().claims.token, last);
    EXPECT_GE(observer_.count(event_kind::node_quarantined), 5);
}

TEST_P(lock_manager_test, contention_never_grants_two_callers_at_once) {
    std::atomic<int> inside{0}, most{0}, granted{0};
    std::atomic<std::uint64_t> last{0};
    std::atomic<bool> grew{true};
    auto worker = [](lock_manager& m, acquire_request r, std::atomic<int>& in, std::atomic<int>& peak,
                     std::atomic<int>& count, std::atomic<std::uint64_t>& newest,
                     std::atomic<bool>& growing) -> asio::awaitable<void> {
        for (int i = 0; i < 25; ++i) {
            acquire_request mine = r;
            auto l = co_await m.acquire(std::move(mine));
            if (!l) continue;
            if (const int now_in = ++in; now_in > peak) peak = now_in;
            if (newest.exchange(value_of(l->claims.token)) >= value_of(l->claims.token)) growing = false;
            ++count;
            --in;
            (void)co_await m.release(l->claims, "");
        }
    };
    std::vector<std::future<void>> all;
    for (int w = 0; w < 8; ++w) {
        auto work = worker(*manager_, request("inventory/hot", longest_ttl, 30s), inside, most, granted, last, grew);
        all.push_back(asio::co_spawn(host_.io(static_cast<std::size_t>(w)), std::move(work), asio::use_future));
    }
    for (auto& f : all)
        f.get();
    EXPECT_EQ(granted, 200);
    EXPECT_EQ(most, 1);
    EXPECT_TRUE(grew);
}

TEST_P(lock_manager_test, refuse_new_leases_ends_all_waits_and_allows_release) {
    const auto held = acquire("inventory/sku-1");
    ASSERT_TRUE(held) << held.error().detail;
    auto waiting = host_.start(manager_->acquire(request("inventory/sku-1", longest_ttl, 10s)));
    ASSERT_TRUE(eventually([&] { return manager_->waiters() == 1; }));
    manager_->refuse_new_leases();
    EXPECT_EQ(waiting.get().error().code, errc::shutting_down);
    EXPECT_EQ(acquire("inventory/sku-9").error().code, errc::shutting_down);
    EXPECT_TRUE(release(*held)) << "a held lease can still be released";
}

TEST(lock_manager_of_other_size, one_or_seven_nodes_grant_to_one_caller) {
    for (const std::size_t count : {1U, 7U}) {
        const redis_nodes nodes(count);
        memory_register epochs;
        lock_host a(nodes.config(), epochs), b(nodes.config(), epochs);
        ASSERT_TRUE(eventually([&] { return a.voting_count() + b.voting_count() == 2 * count; }));
        const auto held = a.acquire(make_request({"x", "y"}, 1s, 10s));
        ASSERT_TRUE(held) << held.error().detail;
        EXPECT_EQ(b.acquire(make_request({"y"})).error().code, errc::resource_locked);
        EXPECT_EQ(b.run(b.manager().list_leases({})).value().leases.size(), 2U);
        ASSERT_TRUE(a.release(*held));
        const auto next = b.acquire(make_request({"y"}, 1s, 10s));
        ASSERT_TRUE(next) << next.error().detail;
        EXPECT_GT(next->claims.token, held->claims.token);
    }
}

}  // namespace
}  // namespace lockcore
