// What a holder can do with a lease, over real Redis and two managers: as two gateways would serve it.
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

class holding_test : public ::testing::TestWithParam<std::size_t> {
  protected:
    holding_test() : here_(settings(nodes_), epochs_), there_(settings(nodes_), epochs_, 2) {
        EXPECT_TRUE(eventually([&] { return here_.voting() == nodes_.size() && there_.voting() == nodes_.size(); }));
    }
    static config settings(const redis_nodes& nodes) {
        config cfg = nodes.config();
        cfg.max_ttl = 5s;
        cfg.default_ttl = 1s;
        cfg.max_renewals = 3;
        return cfg;
    }
    static acquire_request named(const std::string& resource, const std::string& owner, milliseconds ttl = 1s) {
        acquire_request r = lease_of({resource}, ttl);
        r.by.owner = owner;
        return r;
    }
    std::size_t keys() const {
        std::size_t all = 0;
        for (std::size_t n = 0; n < nodes_.size(); ++n)
            all += nodes_.lease_keys(n);
        return all;
    }
    bool none_left() const {
        return eventually([&] { return keys() == 0; }, 2s);
    }

    redis_nodes nodes_{GetParam()};
    memory_register epochs_;
    lock_host here_, there_;
};

INSTANTIATE_TEST_SUITE_P(nodes, holding_test, ::testing::Values(1U, 3U, 5U, 7U));

TEST_P(holding_test, owner_asks_again_then_same_token_and_one_hold_more_until_as_many_releases) {
    const auto first = here_.acquire(named("a", "worker-1"));
    ASSERT_TRUE(first) << first.error().detail;
    const auto second = there_.acquire(named("a", "worker-1"));
    ASSERT_TRUE(second) << second.error().detail;
    EXPECT_EQ(second->claims.token, first->claims.token);
    EXPECT_NE(second->id, first->id) << "each hold has a lease_id of its own";
    EXPECT_EQ(second->claims.attempt, first->claims.attempt);
    EXPECT_TRUE(second->entered);
    EXPECT_EQ(second->hold_count, 2U);
    EXPECT_EQ(here_.acquire(named("a", "worker-2")).error().code, errc::resource_locked);

    EXPECT_EQ(here_.release(*first)->holds_left, 1U);
    EXPECT_EQ(there_.release(*first)->holds_left, 1U) << "given back twice, it is given back once";
    EXPECT_EQ(here_.acquire(lease_of({"a"})).error().code, errc::resource_locked) << "one hold is left";
    EXPECT_EQ(there_.release(*second)->holds_left, 0U);
    EXPECT_EQ(there_.release(*second).error().code, errc::lease_lost);
    const auto next = here_.acquire(lease_of({"a"}));
    ASSERT_TRUE(next);
    EXPECT_GT(next->claims.token, first->claims.token);
}

TEST_P(holding_test, owner_asks_again_for_less_time_then_the_time_is_not_cut) {
    const auto first = here_.acquire(named("a", "worker-1", 4s));
    ASSERT_TRUE(first);
    const auto shorter = here_.acquire(named("a", "worker-1", 200ms));
    ASSERT_TRUE(shorter) << shorter.error().detail;
    EXPECT_GT(here_.run(here_.manager().inspect(first->claims))->validity, 3s);
    ASSERT_TRUE(here_.acquire(named("a", "worker-1", 5s)));
    const auto seen = here_.run(here_.manager().inspect(first->claims));
    EXPECT_GT(seen->validity, 4s) << "but made longer";
    EXPECT_EQ(seen->hold_count, 3U);
    EXPECT_EQ(seen->renewals_left, 3U) << "a hold is no renewal";
}

TEST_P(holding_test, holder_waits_for_a_hand_over_then_a_release_of_one_hold_hands_nothing_over) {
    const auto first = here_.acquire(named("a", "worker-1", 3s));
    const auto second = here_.acquire(named("a", "worker-1", 3s));
    ASSERT_TRUE(second);
    auto waiting = here_.begin(here_.manager().acquire(lease_of({"a"}, 1s, 4s)));
    ASSERT_TRUE(eventually([&] { return here_.manager().waiters() == 1; }));
    EXPECT_EQ(here_.release(*first)->holds_left, 1U);
    EXPECT_EQ(waiting.wait_for(100ms), std::future_status::timeout);
    EXPECT_TRUE(here_.run(here_.manager().inspect(second->claims)));
    EXPECT_EQ(here_.release(*second)->holds_left, 0U);
    const auto next = waiting.get();
    ASSERT_TRUE(next);
    EXPECT_GT(next->claims.token, first->claims.token);
}

TEST_P(holding_test, several_resources_then_all_or_none_under_one_token_newer_than_each) {
    const auto b = here_.acquire(lease_of({"b"}));
    ASSERT_TRUE(b);
    const auto none = there_.acquire(lease_of({"c", "a", "b"}));
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, errc::resource_locked);
    const auto a = here_.acquire(lease_of({"a"}));
    ASSERT_TRUE(a) << "the refused one left nothing behind";
    ASSERT_TRUE(here_.release(*a));
    ASSERT_TRUE(here_.release(*b));
    const auto all = there_.acquire(lease_of({"c", "a", "b"}));
    ASSERT_TRUE(all) << all.error().detail;
    EXPECT_GT(all->claims.token, a->claims.token);
    EXPECT_GT(all->claims.token, b->claims.token);
    for (const char* name : {"a", "b", "c"})
        EXPECT_EQ(here_.acquire(lease_of({name})).error().code, errc::resource_locked);
    ASSERT_TRUE(there_.run(there_.manager().renew(all->claims, 2s, "")));
    ASSERT_TRUE(there_.release(*all));
    EXPECT_TRUE(none_left());
    for (const char* name : {"a", "b", "c"})
        EXPECT_GT(here_.acquire(lease_of({name}, 100ms))->claims.token, all->claims.token) << "each counter was raised";
}

TEST_P(holding_test, overlapping_sets_are_wanted_at_once_then_each_gets_its_turn) {
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
        lock_host& host = i % 2 == 0 ? here_ : there_;
        all.push_back(host.begin(
            work(host.manager(), lease_of(sets[static_cast<std::size_t>(i) % 3], 2s, 5s), inside, most, served)));
    }
    for (auto& f : all)
        f.get();
    EXPECT_EQ(served, 36) << "no livelock";
    EXPECT_EQ(most, 1) << "any two of the sets share a resource";
    EXPECT_TRUE(none_left());
}

TEST_P(holding_test, same_idempotency_key_then_the_same_lease_and_no_second_hold) {
    acquire_request r = lease_of({"a"}, 2s);
    r.idempotency_key = "job-1";
    const auto first = here_.acquire(r);
    ASSERT_TRUE(first);
    const auto again = there_.acquire(r);
    ASSERT_TRUE(again) << again.error().detail;
    EXPECT_TRUE(again->repeated);
    EXPECT_EQ(again->id, first->id);
    EXPECT_EQ(again->hold_count, 1U);
    EXPECT_EQ(again->ttl, 2s);
    acquire_request other = r;
    other.ttl = 1s;
    EXPECT_EQ(there_.acquire(other).error().code, errc::idempotency_mismatch);
    acquire_request stranger = r;
    stranger.by.principal = "somebody else";
    EXPECT_EQ(there_.acquire(stranger).error().code, errc::resource_locked);
    ASSERT_TRUE(here_.release(*first));
    EXPECT_GT(there_.acquire(r)->claims.token, first->claims.token) << "the lease is over: a new one";
}

TEST_P(holding_test, same_key_with_an_owner_then_repeated_but_another_key_is_another_hold) {
    acquire_request r = named("a", "worker-1", 2s);
    r.idempotency_key = "1";
    ASSERT_EQ(here_.acquire(r)->hold_count, 1U);
    EXPECT_EQ(here_.acquire(r)->hold_count, 1U);
    r.idempotency_key = "2";
    EXPECT_EQ(there_.acquire(r)->hold_count, 2U);
    EXPECT_EQ(there_.acquire(r)->hold_count, 2U) << "the second hold's answer was lost: it is not counted twice";
    r.idempotency_key = "1";
    EXPECT_EQ(there_.acquire(r)->hold_count, 2U);
}

TEST_P(holding_test, kept_then_renewed_until_taken_away_which_is_told_at_once) {
    acquire_request r = lease_of({"a"}, 600ms);
    r.kept = true;
    const auto granted = here_.acquire(r);
    ASSERT_TRUE(granted);
    kept_lease kept(*granted);
    for (int i = 0; i < 2; ++i) {
        const auto step = here_.run(here_.manager().keep(kept, ""));
        ASSERT_TRUE(step);
        ASSERT_EQ(step->what, keep_step::outcome::renewed) << step->why;
        kept = step->kept;
    }
    auto next = here_.begin(here_.manager().keep(kept, ""));
    // Real time: it waits until the lease is to be renewed.
    std::this_thread::sleep_for(20ms);
    const auto seen = there_.run(there_.manager().look(*resource_name::parse("a")));
    ASSERT_TRUE(seen && *seen);
    const auto began = std::chrono::steady_clock::now();
    ASSERT_TRUE(there_.run(there_.manager().revoke((*seen)->claims, {{"operator", ""}, "stuck", ""})));
    const auto step = next.get();
    ASSERT_TRUE(step);
    EXPECT_EQ(step->what, keep_step::outcome::lost);
    EXPECT_LT(std::chrono::steady_clock::now() - began, 150ms) << "not at the next renewal";
    EXPECT_EQ(there_.observer.count(event_kind::lease_revoked), 1);
}

TEST_P(holding_test, kept_until_its_hold_is_over_then_exhausted_and_cancelled_then_it_stands) {
    acquire_request r = lease_of({"a"}, 150ms);
    r.kept = true;
    kept_lease kept(*here_.acquire(r));
    kept.hold_for(420ms);
    const auto began = std::chrono::steady_clock::now();
    auto what = keep_step::outcome::renewed;
    int renewals = -1;
    for (; what == keep_step::outcome::renewed; ++renewals) {
        const auto step = here_.run(here_.manager().keep(kept, ""));
        ASSERT_TRUE(step);
        what = step->what;
        kept = step->kept;
    }
    EXPECT_EQ(what, keep_step::outcome::exhausted);
    EXPECT_GT(renewals, 3) << "max_renewals does not end a kept lease";
    EXPECT_GE(std::chrono::steady_clock::now() - began, 380ms);
    EXPECT_TRUE(here_.release(kept.current)) << "it was still held";

    acquire_request b = lease_of({"b"}, 5s);
    b.kept = true;
    const auto other = here_.acquire(b);
    auto gone = std::make_shared<boost::asio::cancellation_signal>();
    std::promise<errc> outcome;
    boost::asio::post(here_.io(), [&] {
        boost::asio::co_spawn(here_.io(), here_.manager().keep(kept_lease(*other), ""),
                              boost::asio::bind_cancellation_slot(
                                  gone->slot(), [&](const std::exception_ptr&, const result<keep_step>& s) {
                                      outcome.set_value(s ? errc::invalid_argument : s.error().code);
                                  }));
    });
    // Real time: it waits until the lease is to be renewed.
    std::this_thread::sleep_for(50ms);
    boost::asio::post(here_.io(), [gone] { gone->emit(boost::asio::cancellation_type::terminal); });
    EXPECT_EQ(outcome.get_future().get(), errc::cancelled);
    EXPECT_TRUE(here_.release(*other)) << "it was still held";
}

TEST_P(holding_test, listed_then_every_live_lease_once_in_order_and_in_pages) {
    std::vector<lease> held;
    for (int i = 0; i < 45; ++i) {
        const std::string number = std::to_string(100 + i);
        held.push_back(*(i % 2 == 0 ? here_ : there_).acquire(lease_of({"list/" + number}, 4s)));
    }
    ASSERT_TRUE(here_.acquire(lease_of({"other", "other/2"}, 4s)));
    std::vector<std::string> names;
    lease_query query;
    query.prefix = "list/";
    query.limit = 20;
    int pages = 0;
    do {
        const auto page = here_.run(here_.manager().list(query));
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
    EXPECT_EQ(there_.run(there_.manager().list(query))->leases.size(), 47U)
        << "one for each resource of a lease on two";
    ASSERT_TRUE(here_.release(held.front()));
    EXPECT_EQ(there_.run(there_.manager().list(query))->leases.size(), 46U);
}

class healing_test : public holding_test {};
INSTANTIATE_TEST_SUITE_P(nodes, healing_test, ::testing::Values(3U, 5U, 7U));

TEST_P(healing_test, a_node_comes_back_empty_then_a_renewal_puts_the_lease_back_there_and_a_release_takes_it_away) {
    const auto held = here_.acquire(named("a", "worker-1", 5s));
    ASSERT_TRUE(held);
    nodes_.kill(0);
    nodes_.start(0);
    ASSERT_TRUE(eventually([&] { return here_.voting() < nodes_.size(); }));
    ASSERT_TRUE(here_.run(here_.manager().renew(held->claims, 5s, "")));
    // Real time: it sits out for max_ttl, and the lease is renewed once meanwhile and once more after that.
    std::this_thread::sleep_for(2500ms);
    ASSERT_TRUE(here_.run(here_.manager().renew(held->claims, 5s, "")));
    ASSERT_TRUE(eventually([&] { return here_.voting() == nodes_.size(); }));
    EXPECT_EQ(nodes_.lease_keys(0), 0U);
    EXPECT_TRUE(here_.run(here_.manager().renew(held->claims, 5s, "")));
    EXPECT_TRUE(eventually([&] { return nodes_.lease_keys(0) == 1; })) << "topped up";
    ASSERT_TRUE(here_.release(*held));
    EXPECT_TRUE(none_left());
}

}  // namespace
}  // namespace lockcore
