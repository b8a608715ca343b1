// Operations on held leases with real Redis nodes and two lock managers, as in two gateways.
#include <support/lock_host.hpp>
#include <support/redis_nodes.hpp>

#include <gtest/gtest.h>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/post.hpp>

#include <future>

namespace lockcore {
namespace {

using namespace std::chrono_literals;
using namespace fencegate::testing;

/// Outlives all calls of a test on a busy machine. Shorter ones are only used where a test depends on the ttl.
constexpr milliseconds long_ttl = 10s;

class holding_test : public ::testing::TestWithParam<std::size_t> {
  protected:
    holding_test() : host_a_(settings(nodes_), epochs_), host_b_(settings(nodes_), epochs_, 2) {
        EXPECT_TRUE(eventually(
            [&] { return host_a_.voting_count() == nodes_.size() && host_b_.voting_count() == nodes_.size(); }));
    }
    static config settings(const redis_nodes& nodes) {
        config cfg = nodes.config();
        cfg.max_ttl = long_ttl;
        cfg.default_ttl = 5s;
        cfg.max_renewals = 3;
        // So that a busy machine does not make a node seem slow.
        cfg.node_timeout = 2s;
        cfg.node_dead_after = 6s;
        cfg.answer_bound = 2s;
        return cfg;
    }
    static acquire_request request_of_owner(const std::string& resource, const std::string& owner,
                                            milliseconds ttl = long_ttl) {
        acquire_request r = make_request({resource}, ttl);
        r.holder.owner = owner;
        return r;
    }
    std::size_t count_lease_keys() const {
        std::size_t all = 0;
        for (std::size_t n = 0; n < nodes_.size(); ++n)
            all += nodes_.lease_keys(n);
        return all;
    }
    /// Returns whether all leases end soon, and not only with their ttl (long_ttl).
    bool no_lease_keys_left() const {
        return eventually([&] { return count_lease_keys() == 0; }, 4s);
    }

    redis_nodes nodes_{GetParam()};
    memory_register epochs_;
    lock_host host_a_, host_b_;
};

INSTANTIATE_TEST_SUITE_P(nodes, holding_test, ::testing::Values(1U, 3U, 5U, 7U));

TEST_P(holding_test, same_owner_again_gets_same_token_and_another_hold) {
    const auto first = host_a_.acquire(request_of_owner("a", "worker-1"));
    ASSERT_TRUE(first) << first.error().detail;
    const auto second = host_b_.acquire(request_of_owner("a", "worker-1"));
    ASSERT_TRUE(second) << second.error().detail;
    EXPECT_EQ(second->claims.token, first->claims.token);
    EXPECT_NE(second->id, first->id) << "each hold has a lease_id of its own";
    EXPECT_EQ(second->claims.attempt_id, first->claims.attempt_id);
    EXPECT_TRUE(second->reentrant);
    EXPECT_EQ(second->hold_count, 2U);
    EXPECT_EQ(host_a_.acquire(request_of_owner("a", "worker-2")).error().code, errc::resource_locked);

    EXPECT_EQ(host_a_.release(*first).value().holds_left, 1U);
    EXPECT_EQ(host_b_.release(*first).value().holds_left, 1U) << "a second release of a hold has no effect";
    EXPECT_EQ(host_a_.acquire(make_request({"a"})).error().code, errc::resource_locked) << "one hold is left";
    EXPECT_EQ(host_b_.release(*second).value().holds_left, 0U);
    EXPECT_EQ(host_b_.release(*second).error().code, errc::lease_lost);
    const auto next = host_a_.acquire(make_request({"a"}, long_ttl));
    ASSERT_TRUE(next) << next.error().detail;
    EXPECT_GT(next->claims.token, first->claims.token);
}

TEST_P(holding_test, shorter_ttl_of_same_owner_does_not_shorten_lease) {
    const auto first = host_a_.acquire(request_of_owner("a", "worker-1", 6s));
    ASSERT_TRUE(first) << first.error().detail;
    const auto shorter = host_a_.acquire(request_of_owner("a", "worker-1", 2500ms));
    ASSERT_TRUE(shorter) << shorter.error().detail;
    EXPECT_GT(host_a_.run(host_a_.manager().inspect(first->claims)).value().validity, 2500ms);
    ASSERT_TRUE(host_a_.acquire(request_of_owner("a", "worker-1", 10s)));
    const auto seen = host_a_.run(host_a_.manager().inspect(first->claims));
    ASSERT_TRUE(seen) << seen.error().detail;
    EXPECT_GT(seen->validity, 6s) << "a longer ttl extends it";
    EXPECT_EQ(seen->hold_count, 3U);
    EXPECT_EQ(seen->renewals_left, 3U) << "another hold is not counted as a renewal";
}

TEST_P(holding_test, release_of_one_of_two_holds_does_not_grant_the_waiter) {
    const auto first = host_a_.acquire(request_of_owner("a", "worker-1"));
    ASSERT_TRUE(first) << first.error().detail;
    const auto second = host_a_.acquire(request_of_owner("a", "worker-1"));
    ASSERT_TRUE(second) << second.error().detail;
    auto waiting = host_a_.start(host_a_.manager().acquire(make_request({"a"}, long_ttl, 20s)));
    ASSERT_TRUE(eventually([&] { return host_a_.manager().waiters() == 1; }));
    EXPECT_EQ(host_a_.release(*first).value().holds_left, 1U);
    EXPECT_EQ(waiting.wait_for(100ms), std::future_status::timeout);
    EXPECT_TRUE(host_a_.run(host_a_.manager().inspect(second->claims)));
    EXPECT_EQ(host_a_.release(*second).value().holds_left, 0U);
    const auto next = waiting.get();
    ASSERT_TRUE(next) << next.error().detail;
    EXPECT_GT(next->claims.token, first->claims.token);
}

TEST_P(holding_test, several_resources_all_or_none_under_one_newer_token) {
    const auto b = host_a_.acquire(make_request({"b"}, long_ttl));
    ASSERT_TRUE(b) << b.error().detail;
    const auto none = host_b_.acquire(make_request({"c", "a", "b"}, long_ttl));
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, errc::resource_locked);
    const auto a = host_a_.acquire(make_request({"a"}, long_ttl));
    ASSERT_TRUE(a) << "the refused request left no key";
    ASSERT_TRUE(host_a_.release(*a));
    ASSERT_TRUE(host_a_.release(*b));
    const auto all = host_b_.acquire(make_request({"c", "a", "b"}, long_ttl));
    ASSERT_TRUE(all) << all.error().detail;
    EXPECT_GT(all->claims.token, a->claims.token);
    EXPECT_GT(all->claims.token, b->claims.token);
    for (const char* name : {"a", "b", "c"})
        EXPECT_EQ(host_a_.acquire(make_request({name})).error().code, errc::resource_locked);
    ASSERT_TRUE(host_b_.run(host_b_.manager().renew(all->claims, long_ttl, "")));
    ASSERT_TRUE(host_b_.release(*all));
    EXPECT_TRUE(no_lease_keys_left());
    for (const char* name : {"a", "b", "c"})
        EXPECT_GT(host_a_.acquire(make_request({name}, long_ttl)).value().claims.token, all->claims.token)
            << "each counter was raised";
}

TEST_P(holding_test, overlapping_resource_sets_are_each_granted_in_turn) {
    const std::vector<std::vector<std::string>> sets{{"a", "b"}, {"b", "c"}, {"c", "a"}};
    std::atomic<int> inside{0}, most{0}, served{0};
    const auto work = [](lock_manager& m, acquire_request r, std::atomic<int>& in, std::atomic<int>& peak,
                         std::atomic<int>& count) -> boost::asio::awaitable<void> {
        for (int i = 0; i < 6; ++i) {
            acquire_request mine = r;
            auto got = co_await m.acquire(std::move(mine));
            if (!got) continue;
            peak = std::max<int>(peak, ++in);
            --in;
            ++count;
            (void)co_await m.release(got->claims, "");
        }
    };
    std::vector<std::future<void>> all;
    for (int i = 0; i < 6; ++i) {
        lock_host& host = i % 2 == 0 ? host_a_ : host_b_;
        all.push_back(host.start(work(
            host.manager(), make_request(sets[static_cast<std::size_t>(i) % 3], long_ttl, 30s), inside, most, served)));
    }
    for (auto& f : all)
        f.get();
    EXPECT_EQ(served, 36) << "no livelock";
    EXPECT_EQ(most, 1) << "any two of the sets share a resource";
    EXPECT_TRUE(no_lease_keys_left());
}

TEST_P(holding_test, same_idempotency_key_gets_same_lease_without_second_hold) {
    acquire_request r = make_request({"a"}, long_ttl);
    r.idempotency_key = "job-1";
    const auto first = host_a_.acquire(r);
    ASSERT_TRUE(first) << first.error().detail;
    const auto again = host_b_.acquire(r);
    ASSERT_TRUE(again) << again.error().detail;
    EXPECT_TRUE(again->repeated);
    EXPECT_EQ(again->id, first->id);
    EXPECT_EQ(again->hold_count, 1U);
    EXPECT_EQ(again->ttl, long_ttl);
    acquire_request other = r;
    other.ttl = 5s;
    EXPECT_EQ(host_b_.acquire(other).error().code, errc::idempotency_mismatch);
    acquire_request other_principal = r;
    other_principal.holder.principal = "somebody else";
    EXPECT_EQ(host_b_.acquire(other_principal).error().code, errc::resource_locked);
    ASSERT_TRUE(host_a_.release(*first));
    EXPECT_GT(host_b_.acquire(r).value().claims.token, first->claims.token)
        << "the first lease has ended, so this is a new one";
}

TEST_P(holding_test, idempotency_key_of_owner_identifies_one_hold) {
    acquire_request r = request_of_owner("a", "worker-1");
    r.idempotency_key = "1";
    ASSERT_EQ(host_a_.acquire(r).value().hold_count, 1U);
    EXPECT_EQ(host_a_.acquire(r).value().hold_count, 1U);
    r.idempotency_key = "2";
    EXPECT_EQ(host_b_.acquire(r).value().hold_count, 2U);
    EXPECT_EQ(host_b_.acquire(r).value().hold_count, 2U) << "a repeated request adds no hold";
    r.idempotency_key = "1";
    EXPECT_EQ(host_b_.acquire(r).value().hold_count, 2U);
}

TEST_P(holding_test, kept_lease_is_renewed_and_reports_revocation_at_once) {
    acquire_request r = make_request({"a"}, 3s);
    r.kept = true;
    const auto granted = host_a_.acquire(r);
    ASSERT_TRUE(granted) << granted.error().detail;
    const auto first = host_a_.run(host_a_.manager().keep(kept_lease(*granted), ""));
    ASSERT_TRUE(first) << first.error().detail;
    ASSERT_EQ(first->result, keep_step::outcome::renewed) << first->reason;
    // The next renewal is due after 3 s, so that a busy machine reports the revocation earlier.
    const auto longer = host_a_.run(host_a_.manager().renew(first->kept.current.claims, 9s, ""));
    ASSERT_TRUE(longer) << longer.error().detail;
    const auto began = std::chrono::steady_clock::now();
    auto next = host_a_.start(host_a_.manager().keep(kept_lease(*longer), ""));
    // Real time: `keep` waits until the next renewal is due.
    std::this_thread::sleep_for(20ms);
    const auto seen = host_b_.run(host_b_.manager().find_lease(resource_name::parse("a").value()));
    ASSERT_TRUE(seen && *seen);
    ASSERT_TRUE(host_b_.run(host_b_.manager().revoke((*seen)->claims, {{"operator", ""}, "stuck", ""})));
    const auto step = next.get();
    ASSERT_TRUE(step);
    EXPECT_EQ(step->result, keep_step::outcome::lost);
    EXPECT_LT(std::chrono::steady_clock::now() - began, 3s) << "reported before the next renewal";
    EXPECT_EQ(host_b_.observer.count(event_kind::lease_revoked), 1);
}

TEST_P(holding_test, kept_lease_stays_held_when_exhausted_or_cancelled) {
    acquire_request r = make_request({"a"}, 3s);
    r.kept = true;
    const auto granted = host_a_.acquire(r);
    ASSERT_TRUE(granted) << granted.error().detail;
    for (int i = 0; i < 2; ++i)
        ASSERT_TRUE(host_a_.run(host_a_.manager().renew(granted->claims, 3s, "")));
    const auto began = std::chrono::steady_clock::now();
    kept_lease kept(host_a_.run(host_a_.manager().renew(granted->claims, 3s, "")).value());
    ASSERT_EQ(kept.current.renewals_left, 0U);
    kept.limit_hold(3200ms);
    auto last_result = keep_step::outcome::renewed;
    int renewals = -1;
    for (; last_result == keep_step::outcome::renewed; ++renewals) {
        const auto step = host_a_.run(host_a_.manager().keep(kept, ""));
        ASSERT_TRUE(step) << step.error().detail;
        last_result = step->result;
        kept = step->kept;
    }
    EXPECT_EQ(last_result, keep_step::outcome::exhausted);
    EXPECT_GT(renewals, 0) << "max_renewals does not end a kept lease";
    EXPECT_GE(std::chrono::steady_clock::now() - began, 3100ms);
    EXPECT_TRUE(host_a_.release(kept.current)) << "the lease was still held";

    acquire_request b = make_request({"b"}, long_ttl);
    b.kept = true;
    const auto other = host_a_.acquire(b);
    ASSERT_TRUE(other) << other.error().detail;
    auto cancellation = std::make_shared<boost::asio::cancellation_signal>();
    std::promise<errc> outcome;
    boost::asio::post(host_a_.io(), [&] {
        boost::asio::co_spawn(host_a_.io(), host_a_.manager().keep(kept_lease(*other), ""),
                              boost::asio::bind_cancellation_slot(
                                  cancellation->slot(), [&](const std::exception_ptr&, const result<keep_step>& s) {
                                      outcome.set_value(s ? errc::invalid_argument : s.error().code);
                                  }));
    });
    // Real time: `keep` waits until the next renewal is due.
    std::this_thread::sleep_for(50ms);
    boost::asio::post(host_a_.io(), [cancellation] { cancellation->emit(boost::asio::cancellation_type::terminal); });
    EXPECT_EQ(outcome.get_future().get(), errc::cancelled);
    EXPECT_TRUE(host_a_.release(*other)) << "the lease was still held";
}

TEST_P(holding_test, list_returns_each_live_lease_once_in_order_in_pages) {
    // Together, because all have to live until the end of the test.
    std::vector<std::future<result<lease>>> asked;
    for (int i = 0; i < 45; ++i) {
        lock_host& host = i % 2 == 0 ? host_a_ : host_b_;
        asked.push_back(
            host.start(host.manager().acquire(make_request({"list/" + std::to_string(100 + i)}, long_ttl))));
    }
    std::vector<lease> held;
    for (auto& f : asked)
        held.push_back(f.get().value());
    ASSERT_TRUE(host_a_.acquire(make_request({"other", "other/2"}, long_ttl)));
    std::vector<std::string> names;
    lease_query query;
    query.prefix = "list/";
    query.limit = 20;
    int pages = 0;
    do {
        const auto page = host_a_.run(host_a_.manager().list_leases(query));
        ASSERT_TRUE(page) << page.error().detail;
        for (const live_lease& l : page->leases) {
            names.push_back(l.claims.resources.front().str());
            EXPECT_GT(l.remaining, 0ms);
        }
        query.after = page->next;
        ++pages;
    } while (!query.after.empty());
    EXPECT_EQ(pages, 3);
    ASSERT_EQ(names.size(), 45U);
    EXPECT_TRUE(std::ranges::is_sorted(names));
    query.prefix.clear();
    query.limit = 100;
    EXPECT_EQ(host_b_.run(host_b_.manager().list_leases(query)).value().leases.size(), 47U)
        << "a lease on two resources is listed once for each";
    ASSERT_TRUE(host_a_.release(held.front()));
    EXPECT_EQ(host_b_.run(host_b_.manager().list_leases(query)).value().leases.size(), 46U);
}

class restarted_node_test : public holding_test {};
INSTANTIATE_TEST_SUITE_P(nodes, restarted_node_test, ::testing::Values(3U, 5U, 7U));

TEST_P(restarted_node_test, restarted_node_gets_lease_and_counts_after_renewal) {
    const auto held = host_a_.acquire(request_of_owner("a", "worker-1"));
    ASSERT_TRUE(held) << held.error().detail;
    nodes_.kill(0);
    ASSERT_TRUE(eventually([&] { return host_a_.voting_count() < nodes_.size(); }));
    nodes_.start(0);
    ASSERT_TRUE(host_a_.run(host_a_.manager().renew(held->claims, long_ttl, "")));
    ASSERT_TRUE(eventually([&] { return host_a_.voting_count() == nodes_.size(); }));
    EXPECT_EQ(nodes_.lease_keys(0), 1U) << "FAST READMISSION has copied it";
    ASSERT_TRUE(host_a_.run(host_a_.manager().renew(held->claims, long_ttl, ""))) << "begins an UPGRADE on the node";
    // Without as many others as a majority can spare, the lease lives by the restarted node.
    const std::size_t spared = nodes_.size() - majority_of(nodes_.size());
    for (std::size_t n = 1; n <= spared; ++n)
        nodes_.kill(n);
    EXPECT_TRUE(host_a_.run(host_a_.manager().renew(held->claims, long_ttl, "")));
    ASSERT_TRUE(eventually([&] { return host_a_.voting_count() == nodes_.size() - spared; }));
    for (std::size_t n = 1; n <= spared; ++n)
        nodes_.start(n);
    ASSERT_TRUE(eventually([&] { return host_a_.voting_count() == nodes_.size(); }, 20s));
    ASSERT_TRUE(host_a_.release(*held));
    EXPECT_TRUE(no_lease_keys_left());
}

}  // namespace
}  // namespace lockcore
