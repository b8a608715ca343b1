// Waiting for a lease at two managers, over real Redis: order, turns, messages, and callers that go away.
#include <support/lock_host.hpp>
#include <support/redis_nodes.hpp>

#include <gtest/gtest.h>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/post.hpp>

#include <atomic>
#include <future>

namespace lockcore {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using namespace fencegate::testing;

/// Looking again by itself at the latest (wait_queue::look_again), and the time for it on a busy machine.
constexpr auto wait_longest = 1500ms;

class waiting_test : public ::testing::Test {
  protected:
    waiting_test() : here_(settings(nodes_), epochs_), there_(settings(nodes_), epochs_) {
        EXPECT_TRUE(eventually([&] { return here_.voting() == 5 && there_.voting() == 5; }));
    }
    static config settings(const redis_nodes& nodes) {
        config cfg = nodes.config();
        cfg.max_ttl = 10s;
        cfg.handoff_max = 4;
        cfg.node_timeout = 1s;  // No node is slow here, and a busy machine is not to make one seem so.
        return cfg;
    }
    bool none_left() const {
        return eventually([&] {
            std::size_t all = 0;
            for (std::size_t n = 0; n < nodes_.size(); ++n)
                all += nodes_.lease_keys(n);
            return all == 0;
        });
    }
    /// Takes and releases until told to stop; the turns it had.
    static asio::awaitable<int> turns(lock_manager& m, std::atomic<bool>& stop, std::atomic<int>& inside,
                                      std::atomic<bool>& overlap) {
        int had = 0;
        while (!stop) {
            acquire_request r = lease_of({"hot"}, 2s, 5s);
            auto mine = co_await m.acquire(std::move(r));
            if (!mine) continue;
            if (++inside > 1) overlap = true;
            ++had;
            --inside;
            (void)co_await m.release(mine->claims, "");
        }
        co_return had;
    }

    redis_nodes nodes_{5};
    memory_register epochs_;
    lock_host here_, there_;
};

TEST_F(waiting_test, one_manager_then_turns_within_two_of_each_other) {
    std::atomic<bool> stop{false}, overlap{false};
    std::atomic<int> inside{0};
    std::vector<std::future<int>> workers;
    for (int i = 0; i < 8; ++i)
        workers.push_back(here_.begin(turns(here_.manager(), stop, inside, overlap)));
    // Real time: they take turns meanwhile.
    std::this_thread::sleep_for(1s);
    stop = true;
    int least = 1 << 30, most = 0;
    for (auto& w : workers) {
        const int had = w.get();
        least = std::min(least, had);
        most = std::max(most, had);
    }
    EXPECT_GT(least, 3);
    EXPECT_LE(most - least, 2);
    EXPECT_FALSE(overlap);
}

TEST_F(waiting_test, two_managers_then_both_get_turns) {
    std::atomic<bool> stop{false}, overlap{false};
    std::atomic<int> inside{0};
    std::vector<std::future<int>> a, b;
    for (int i = 0; i < 4; ++i) {
        a.push_back(here_.begin(turns(here_.manager(), stop, inside, overlap)));
        b.push_back(there_.begin(turns(there_.manager(), stop, inside, overlap)));
    }
    // Real time: they take turns meanwhile.
    std::this_thread::sleep_for(2s);
    stop = true;
    int turns_a = 0, turns_b = 0;
    for (auto& w : a)
        turns_a += w.get();
    for (auto& w : b)
        turns_b += w.get();
    EXPECT_FALSE(overlap);
    EXPECT_GT(turns_a, (turns_a + turns_b) / 5) << turns_b;
    EXPECT_GT(turns_b, (turns_a + turns_b) / 5) << turns_a;
}

TEST_F(waiting_test, released_at_the_other_manager_then_told_at_once) {
    std::vector<milliseconds> took;
    for (int i = 0; i < 9; ++i) {
        const auto held = here_.acquire(lease_of({"a"}, 5s));
        ASSERT_TRUE(held);
        auto waiting = there_.begin(there_.manager().acquire(lease_of({"a"}, 5s, 5s)));
        // Real time: long enough for it to look again only every quarter of a second.
        std::this_thread::sleep_for(600ms);
        const auto began = std::chrono::steady_clock::now();
        ASSERT_TRUE(here_.release(*held));
        const auto got = waiting.get();
        took.push_back(std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - began));
        ASSERT_TRUE(got);
        ASSERT_TRUE(there_.release(*got));
    }
    std::ranges::nth_element(took, took.begin() + 4);
    EXPECT_LT(took[4], 60ms);
}

TEST_F(waiting_test, messages_are_lost_then_the_wait_is_bounded) {
    const auto held = here_.acquire(lease_of({"a"}, 10s));
    ASSERT_TRUE(held);
    auto waiting = there_.begin(there_.manager().acquire(lease_of({"a"}, 5s, 8s)));
    ASSERT_TRUE(eventually([&] { return there_.manager().waiters() == 1; }));
    for (std::size_t n = 0; n < nodes_.size(); ++n)
        nodes_.command(n, {"CLIENT", "KILL", "TYPE", "pubsub"});
    const auto began = std::chrono::steady_clock::now();
    ASSERT_TRUE(here_.release(*held));
    ASSERT_TRUE(waiting.get());
    EXPECT_LT(std::chrono::steady_clock::now() - began, wait_longest);
}

TEST_F(waiting_test, holder_dies_then_the_next_gets_it_when_its_time_is_over) {
    ASSERT_TRUE(here_.acquire(lease_of({"a"}, 400ms)));
    const auto began = std::chrono::steady_clock::now();
    const auto next = there_.acquire(lease_of({"a"}, 1s, 5s));
    ASSERT_TRUE(next);
    const auto took = std::chrono::steady_clock::now() - began;
    EXPECT_GT(took, 250ms);
    EXPECT_LT(took, 400ms + wait_longest);
}

TEST_F(waiting_test, waiter_goes_away_while_the_lease_is_handed_to_it_then_nothing_is_left) {
    for (int i = 0; i < 30; ++i) {
        const auto held = here_.acquire(lease_of({"a"}, 5s));
        ASSERT_TRUE(held) << held.error().detail;
        auto gone = std::make_shared<asio::cancellation_signal>();
        std::promise<bool> granted;
        asio::post(here_.io(), [&] {
            asio::co_spawn(
                here_.io(), here_.manager().acquire(lease_of({"a"}, 5s, 5s)),
                asio::bind_cancellation_slot(gone->slot(), [&](const std::exception_ptr&, const result<lease>& r) {
                    if (r) (void)here_.begin(here_.manager().release(r->claims, ""));
                    granted.set_value(static_cast<bool>(r));
                }));
        });
        ASSERT_TRUE(eventually([&] { return here_.manager().waiters() == 1; }));
        auto released = here_.begin(here_.manager().release(held->claims, ""));
        // Real time: at another moment of the hand-over each time.
        std::this_thread::sleep_for(std::chrono::microseconds(40 * i));
        asio::post(here_.io(), [gone] { gone->emit(asio::cancellation_type::terminal); });
        granted.get_future().get();
        EXPECT_TRUE(released.get());
        ASSERT_TRUE(none_left());
    }
}

TEST_F(waiting_test, others_wait_then_a_caller_that_does_not_wait_cannot_overtake_them) {
    const auto held = here_.acquire(lease_of({"a"}, 5s));
    auto waiting = here_.begin(here_.manager().acquire(lease_of({"a"}, 5s, 5s)));
    ASSERT_TRUE(eventually([&] { return here_.manager().waiters() == 1; }));
    EXPECT_EQ(here_.acquire(lease_of({"a"})).error().code, errc::resource_locked);
    ASSERT_TRUE(here_.release(*held));
    ASSERT_TRUE(waiting.get());
}

TEST_F(waiting_test, waits_for_several_resources_then_told_of_each) {
    const auto a = here_.acquire(lease_of({"a"}, 8s));
    const auto b = there_.acquire(lease_of({"b"}, 8s));
    auto waiting = here_.begin(here_.manager().acquire(lease_of({"a", "b"}, 2s, 8s)));
    ASSERT_TRUE(eventually([&] { return here_.manager().waiters() == 1; }));
    ASSERT_TRUE(here_.release(*a));
    EXPECT_EQ(waiting.wait_for(300ms), std::future_status::timeout);
    const auto began = std::chrono::steady_clock::now();
    ASSERT_TRUE(there_.release(*b));
    ASSERT_TRUE(waiting.get());
    EXPECT_LT(std::chrono::steady_clock::now() - began, wait_longest);
}

TEST_F(waiting_test, one_of_several_resources_is_hot_then_who_wants_all_of_them_gets_a_turn) {
    std::atomic<bool> stop{false}, overlap{false};
    std::atomic<int> inside{0};
    std::vector<std::future<int>> workers;
    for (int i = 0; i < 4; ++i)
        workers.push_back(here_.begin(turns(here_.manager(), stop, inside, overlap)));
    EXPECT_TRUE(eventually([&] { return here_.manager().waiters() > 0; }));
    for (int i = 0; i < 3; ++i) {
        const auto both = here_.acquire(lease_of({"also", "hot"}, 2s, 5s));
        EXPECT_TRUE(both) << both.error().detail;
        if (both) here_.release(*both);
    }
    stop = true;
    for (auto& w : workers)
        w.get();
}

TEST_F(waiting_test, too_few_nodes_at_first_then_a_caller_that_waits_gets_it) {
    for (std::size_t n = 0; n < 3; ++n)
        nodes_.pause(n);
    // Real time: a process that is told to stop does so a moment later.
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(here_.acquire(lease_of({"a"})).error().code, errc::no_quorum);
    auto waiting = here_.begin(here_.manager().acquire(lease_of({"a"}, 2s, 8s)));
    // Real time: its first tries find too few nodes.
    std::this_thread::sleep_for(300ms);
    for (std::size_t n = 0; n < 3; ++n)
        nodes_.resume(n);
    EXPECT_TRUE(waiting.get());
}

}  // namespace
}  // namespace lockcore
