// Waiting for leases at two lock managers with real Redis nodes: order, fairness, release messages and cancellation.
#include <support/lock_host.hpp>
#include <support/redis_nodes.hpp>

#include <gtest/gtest.h>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <atomic>
#include <future>
#include <vector>

namespace lockcore {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using namespace fencegate::testing;

/// The longest interval between two tries of a waiter (wait_queue::retry_delay_max), plus time for a busy machine.
constexpr auto longest_wait = 3s;

class waiting_test : public ::testing::Test {
  protected:
    waiting_test() : host_a_(settings(nodes_), epochs_), host_b_(settings(nodes_), epochs_) {
        EXPECT_TRUE(eventually([&] { return host_a_.voting_count() == 5 && host_b_.voting_count() == 5; }));
    }
    static config settings(const redis_nodes& nodes) {
        config cfg = nodes.config();
        cfg.max_ttl = 10s;
        cfg.handoff_max = 4;
        // So that a busy machine does not make a node seem slow.
        cfg.node_timeout = 1s;
        cfg.node_dead_after = 6s;
        cfg.answer_bound = 5s;
        return cfg;
    }
    bool no_lease_keys_left() const {
        return eventually([&] {
            std::size_t all = 0;
            for (std::size_t n = 0; n < nodes_.size(); ++n)
                all += nodes_.lease_keys(n);
            return all == 0;
        });
    }
    /// What callers of one resource share.
    struct shared_turns {
        std::atomic<bool> stop{false}, overlap{false};
        std::atomic<int> inside{0}, total{0};
        /// Lets the callers go on until they have had so many grants together. Out: whether that took less than a minute.
        bool stop_after(int grants) {
            const bool reached = eventually([&] { return total >= grants; }, 60s);
            stop = true;
            return reached;
        }
    };

    /// Acquires and releases the resource until `turns.stop` is set.
    /// Out: the number of grants.
    static asio::awaitable<int> count_grants(lock_manager& m, shared_turns& turns) {
        int grants = 0;
        while (!turns.stop) {
            acquire_request r = make_request({"hot"}, 5s, 30s);
            auto mine = co_await m.acquire(std::move(r));
            if (!mine) continue;
            if (++turns.inside > 1) turns.overlap = true;
            ++grants;
            ++turns.total;
            --turns.inside;
            (void)co_await m.release(mine->claims, "");
        }
        co_return grants;
    }

    using durations = std::vector<std::chrono::steady_clock::duration>;
    static durations::value_type median(durations of) {
        const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
        std::ranges::nth_element(of, middle);
        return *middle;
    }

    redis_nodes nodes_{5};
    memory_register epochs_;
    lock_host host_a_, host_b_;
};

TEST_F(waiting_test, callers_of_one_manager_differ_by_at_most_two_grants) {
    shared_turns turns;
    // All begin at the same time: when they wait for this lease.
    const auto first = host_a_.acquire(make_request({"hot"}, 10s, 0s));
    ASSERT_TRUE(first) << first.error().detail;
    std::vector<std::future<int>> workers;
    for (int i = 0; i < 8; ++i)
        workers.push_back(host_a_.start(count_grants(host_a_.manager(), turns)));
    EXPECT_TRUE(eventually([&] { return host_a_.manager().waiters() == 8; }));
    EXPECT_TRUE(host_a_.release(*first));
    EXPECT_TRUE(turns.stop_after(120));
    int least = 1 << 30, most = 0;
    for (auto& w : workers) {
        const int grants = w.get();
        least = std::min(least, grants);
        most = std::max(most, grants);
    }
    EXPECT_GT(least, 3);
    EXPECT_LE(most - least, 2);
    EXPECT_FALSE(turns.overlap);
}

TEST_F(waiting_test, callers_of_two_managers_are_both_granted) {
    shared_turns turns;
    std::vector<std::future<int>> a, b;
    for (int i = 0; i < 4; ++i) {
        a.push_back(host_a_.start(count_grants(host_a_.manager(), turns)));
        b.push_back(host_b_.start(count_grants(host_b_.manager(), turns)));
    }
    EXPECT_TRUE(turns.stop_after(400));
    int turns_a = 0, turns_b = 0;
    for (auto& w : a)
        turns_a += w.get();
    for (auto& w : b)
        turns_b += w.get();
    EXPECT_FALSE(turns.overlap);
    EXPECT_GT(turns_a, (turns_a + turns_b) / 5) << turns_b;
    EXPECT_GT(turns_b, (turns_a + turns_b) / 5) << turns_a;
}

TEST_F(waiting_test, release_at_other_manager_notifies_waiter_at_once) {
    durations took, took_free;
    for (int i = 0; i < 9; ++i) {
        const auto held = host_a_.acquire(make_request({"a"}, 10s));
        ASSERT_TRUE(held) << held.error().detail;
        auto waiting = host_b_.start(host_b_.manager().acquire(make_request({"a"}, 10s, 10s)));
        // Real time: long enough that the waiter tries by itself only every 250 ms.
        std::this_thread::sleep_for(600ms);
        const auto began = std::chrono::steady_clock::now();
        ASSERT_TRUE(host_a_.release(*held));
        const auto got = waiting.get();
        took.push_back(std::chrono::steady_clock::now() - began);
        ASSERT_TRUE(got) << got.error().detail;
        ASSERT_TRUE(host_b_.release(*got));
        // What as many calls take here without waiting.
        const auto began_free = std::chrono::steady_clock::now();
        const auto free = host_b_.acquire(make_request({"free"}, 10s));
        ASSERT_TRUE(free) << free.error().detail;
        ASSERT_TRUE(host_b_.release(*free));
        took_free.push_back(std::chrono::steady_clock::now() - began_free);
    }
    EXPECT_LT(median(took), 60ms + 4 * median(took_free));
}

TEST_F(waiting_test, lost_release_messages_delay_waiter_within_bound) {
    const auto held = host_a_.acquire(make_request({"a"}, 10s));
    ASSERT_TRUE(held) << held.error().detail;
    auto waiting = host_b_.start(host_b_.manager().acquire(make_request({"a"}, 5s, 8s)));
    ASSERT_TRUE(eventually([&] { return host_b_.manager().waiters() == 1; }));
    for (std::size_t n = 0; n < nodes_.size(); ++n)
        nodes_.command(n, {"CLIENT", "KILL", "TYPE", "pubsub"});
    const auto began = std::chrono::steady_clock::now();
    ASSERT_TRUE(host_a_.release(*held));
    ASSERT_TRUE(waiting.get());
    EXPECT_LT(std::chrono::steady_clock::now() - began, longest_wait);
}

TEST_F(waiting_test, expired_lease_is_granted_to_waiter_in_time) {
    const auto began = std::chrono::steady_clock::now();
    // Waits, which repeats an attempt that takes longer than so short a ttl.
    ASSERT_TRUE(host_a_.acquire(make_request({"a"}, 400ms, 10s)));
    const auto next = host_b_.acquire(make_request({"a"}, 5s, 10s));
    ASSERT_TRUE(next) << next.error().detail;
    const auto took = std::chrono::steady_clock::now() - began;
    EXPECT_GT(took, 390ms);
    EXPECT_LT(took, 400ms + longest_wait);
}

TEST_F(waiting_test, waiter_cancelled_during_hand_over_leaves_no_key) {
    for (int i = 0; i < 30; ++i) {
        const auto held = host_a_.acquire(make_request({"a"}, 5s));
        ASSERT_TRUE(held) << held.error().detail;
        auto cancellation = std::make_shared<asio::cancellation_signal>();
        std::promise<bool> granted;
        asio::post(host_a_.io(), [&] {
            asio::co_spawn(host_a_.io(), host_a_.manager().acquire(make_request({"a"}, 5s, 5s)),
                           asio::bind_cancellation_slot(
                               cancellation->slot(), [&](const std::exception_ptr&, const result<lease>& r) {
                                   if (r) (void)host_a_.start(host_a_.manager().release(r->claims, ""));
                                   granted.set_value(static_cast<bool>(r));
                               }));
        });
        ASSERT_TRUE(eventually([&] { return host_a_.manager().waiters() == 1; }));
        auto released = host_a_.start(host_a_.manager().release(held->claims, ""));
        // Real time: each round cancels at another moment of the hand-over.
        std::this_thread::sleep_for(std::chrono::microseconds(40 * i));
        asio::post(host_a_.io(), [cancellation] { cancellation->emit(asio::cancellation_type::terminal); });
        granted.get_future().get();
        EXPECT_TRUE(released.get());
        ASSERT_TRUE(no_lease_keys_left());
    }
}

TEST_F(waiting_test, caller_without_wait_cannot_overtake_waiters) {
    const auto held = host_a_.acquire(make_request({"a"}, 10s));
    ASSERT_TRUE(held) << held.error().detail;
    auto waiting = host_a_.start(host_a_.manager().acquire(make_request({"a"}, 10s, 10s)));
    ASSERT_TRUE(eventually([&] { return host_a_.manager().waiters() == 1; }));
    EXPECT_EQ(host_a_.acquire(make_request({"a"})).error().code, errc::resource_locked);
    ASSERT_TRUE(host_a_.release(*held));
    ASSERT_TRUE(waiting.get());
}

TEST_F(waiting_test, waiter_for_several_resources_is_notified_of_each) {
    const auto a = host_a_.acquire(make_request({"a"}, 10s));
    ASSERT_TRUE(a) << a.error().detail;
    const auto b = host_b_.acquire(make_request({"b"}, 10s));
    ASSERT_TRUE(b) << b.error().detail;
    auto waiting = host_a_.start(host_a_.manager().acquire(make_request({"a", "b"}, 5s, 8s)));
    ASSERT_TRUE(eventually([&] { return host_a_.manager().waiters() == 1; }));
    ASSERT_TRUE(host_a_.release(*a));
    EXPECT_EQ(waiting.wait_for(300ms), std::future_status::timeout);
    const auto began = std::chrono::steady_clock::now();
    ASSERT_TRUE(host_b_.release(*b));
    ASSERT_TRUE(waiting.get());
    EXPECT_LT(std::chrono::steady_clock::now() - began, longest_wait);
}

TEST_F(waiting_test, several_resources_are_granted_although_one_is_contended) {
    shared_turns turns;
    std::vector<std::future<int>> workers;
    for (int i = 0; i < 4; ++i)
        workers.push_back(host_a_.start(count_grants(host_a_.manager(), turns)));
    EXPECT_TRUE(eventually([&] { return host_a_.manager().waiters() > 0; }));
    for (int i = 0; i < 3; ++i) {
        const auto both = host_a_.acquire(make_request({"also", "hot"}, 5s, 20s));
        EXPECT_TRUE(both) << both.error().detail;
        if (both) host_a_.release(*both);
    }
    turns.stop = true;
    for (auto& w : workers)
        w.get();
}

TEST_F(waiting_test, waiter_is_granted_once_a_majority_is_back) {
    for (std::size_t n = 0; n < 3; ++n)
        nodes_.pause(n);
    // Real time: SIGSTOP takes effect after a moment.
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(host_a_.acquire(make_request({"a"})).error().code, errc::no_quorum);
    auto waiting = host_a_.start(host_a_.manager().acquire(make_request({"a"}, 5s, 20s)));
    // Real time: the first tries find no majority.
    std::this_thread::sleep_for(300ms);
    for (std::size_t n = 0; n < 3; ++n)
        nodes_.resume(n);
    EXPECT_TRUE(waiting.get());
}

}  // namespace
}  // namespace lockcore
