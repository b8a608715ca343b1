// docs/protocol.md, SHARED LEASES: lock_managers on real nodes.
#include "paper/managed_nodes.hpp"

#include <algorithm>
#include <atomic>

namespace lockcore {
namespace {

using fencegate::testing::lock_host;
using names = std::vector<std::string>;

class managed_sharing : public managed_nodes {
  protected:
    struct wanted {
        names shared = {"prices/eu"}, resources{};
        std::string owner{}, key{};
        milliseconds ttl = 2s, wait = 0s;
    };
    static std::vector<resource_name> parse(const names& texts) {
        std::vector<resource_name> out;
        for (const std::string& text : texts)
            out.push_back(*resource_name::parse(text));
        return out;
    }
    static acquire_request request(const wanted& w) {
        acquire_request r;
        r.resources = parse(w.resources);
        r.shared = parse(w.shared);
        r.holder = {"tests", w.owner};
        r.idempotency_key = w.key;
        r.ttl = w.ttl;
        r.wait = w.wait;
        return r;
    }
    static wanted exclusive(milliseconds wait = 0s, std::string resource = "prices/eu") {
        wanted w;
        w.shared = {};
        w.resources = {std::move(resource)};
        w.wait = wait;
        return w;
    }
    std::future<result<lease>> start(const wanted& w) {
        return asio::co_spawn(io_, manager_->acquire(request(w)), asio::use_future);
    }
    result<lease> take(const wanted& w) { return start(w).get(); }
    resource_leases find(std::size_t limit = 100) { return run(manager_->find_leases(prices_, limit)).value(); }
    result<release_outcome> release(const lease& l) { return run(manager_->release(l.claims, {})); }
    /// Another gateway of the same cluster.
    std::unique_ptr<lock_host> make_another() {
        config cfg = servers_.config();
        cfg.max_ttl = max_ttl;
        cfg.answer_bound = 10s;
        auto out = std::make_unique<lock_host>(cfg, epochs_);
        EXPECT_TRUE(eventually([&] { return out->voting_count() == servers_.size(); }));
        return out;
    }
    /// Returns how many calls of scripts the node has answered.
    std::uint64_t scripts_run() const {
        const std::string info = connect_to(0).command({"INFO", "commandstats"});
        const std::size_t at = info.find("cmdstat_evalsha:calls=");
        return at == std::string::npos ? 0 : std::stoull(info.substr(at + 22));
    }

    const resource_name prices_ = *resource_name::parse("prices/eu");
};

TEST_F(managed_sharing, several_share_and_exclude_exclusive_leases_both_ways) {
    const auto a = take({}), b = take({});
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->claims.shared, parse({"prices/eu"}));
    EXPECT_TRUE(a->claims.resources.empty());
    EXPECT_EQ(take(exclusive()).error().code, errc::resource_locked);
    ASSERT_TRUE(release(*a));
    EXPECT_EQ(take(exclusive()).error().code, errc::resource_locked) << "another holder is left";
    ASSERT_TRUE(release(*b));
    const auto alone = take(exclusive());
    ASSERT_TRUE(alone);
    EXPECT_GT(alone->claims.token, std::max(a->claims.token, b->claims.token));
    EXPECT_EQ(take({}).error().code, errc::resource_locked);
}

TEST_F(managed_sharing, mixed_lease_is_taken_all_or_none) {
    wanted mixed;
    mixed.resources = {"jobs/1"};
    const auto reader = take({});
    const auto both = take(mixed);
    ASSERT_TRUE(reader && both) << "the resource of both is shared";
    EXPECT_EQ(take(mixed).error().code, errc::resource_locked) << "jobs/1 is not";
    ASSERT_TRUE(release(*both));
    ASSERT_TRUE(release(*reader));
    const auto alone = take(exclusive());
    ASSERT_TRUE(alone);
    EXPECT_EQ(take(mixed).error().code, errc::resource_locked);
    EXPECT_TRUE(take(exclusive(0s, "jobs/1"))) << "nothing is left of the refused one";
}

TEST_F(managed_sharing, all_holders_are_found_or_the_first_and_their_number) {
    EXPECT_EQ(find().total, 0U);
    const auto a = take({}), b = take({}), c = take({});
    ASSERT_TRUE(a && b && c);
    const resource_leases all = find();
    EXPECT_TRUE(all.shared);
    EXPECT_EQ(all.total, 3U);
    ASSERT_EQ(all.leases.size(), 3U);
    for (const auto& granted : {a, b, c}) {
        const auto same = std::ranges::find_if(all.leases, [&](const live_lease& l) {
            return l.claims.attempt_id == granted->claims.attempt_id && l.claims.token == granted->claims.token;
        });
        ASSERT_NE(same, all.leases.end());
        EXPECT_EQ(same->claims.shared, granted->claims.shared);
    }
    EXPECT_EQ(find(2).leases.size(), 2U);
    EXPECT_EQ(find(2).total, 3U);
    const auto no_exclusive = run(manager_->find_lease(prices_));
    ASSERT_TRUE(no_exclusive);
    EXPECT_FALSE(*no_exclusive);
    const auto one = run(manager_->find_lease(prices_, b->claims.attempt_id));
    ASSERT_TRUE(one && *one);
    EXPECT_EQ((*one)->claims.attempt_id, b->claims.attempt_id);
    ASSERT_TRUE(release(*b));
    EXPECT_FALSE(*run(manager_->find_lease(prices_, b->claims.attempt_id)));
    EXPECT_EQ(find().total, 2U);
}

TEST_F(managed_sharing, exclusive_holder_is_found_alone) {
    const auto alone = take(exclusive());
    ASSERT_TRUE(alone);
    EXPECT_FALSE(find().shared);
    ASSERT_EQ(find().leases.size(), 1U);
    EXPECT_EQ(find().leases.front().claims.token, alone->claims.token);
}

TEST_F(managed_sharing, pages_have_each_holder_once) {
    names expected;
    for (const char* single : {"orders/1", "zones/1"}) {
        ASSERT_TRUE(take(exclusive(0s, single)));
        expected.emplace_back(single);
    }
    for (int i = 0; i < 5; ++i) {
        const auto shared = take({});
        ASSERT_TRUE(shared);
        expected.push_back("prices/eu " + std::string(shared->claims.attempt_id.str()));
    }
    std::ranges::sort(expected);
    for (const std::size_t limit : {1U, 2U, 3U, 7U, 100U}) {
        names found;
        lease_query query;
        query.limit = limit;
        for (std::size_t pages = 0; pages < 10; ++pages) {
            const auto page = run(manager_->list_leases(query));
            ASSERT_TRUE(page);
            EXPECT_LE(page->leases.size(), limit);
            for (const live_lease& l : page->leases) {
                const bool shares = !l.claims.shared.empty();
                ASSERT_EQ(l.claims.shared.size() + l.claims.resources.size(), 1U);
                found.push_back(first_resource(l.claims).str());
                if (shares) found.back() += ' ' + std::string(l.claims.attempt_id.str());
            }
            query.after = page->next;
            if (query.after.empty()) break;
            EXPECT_TRUE(is_page_position(query.after)) << query.after;
        }
        EXPECT_EQ(found, expected) << limit;
    }
    EXPECT_FALSE(is_page_position("prices/eu\tx"));
}

TEST_F(managed_sharing, holder_renews_adds_holds_and_repeats_its_request) {
    const auto named = take({.owner = "worker-1"});
    ASSERT_TRUE(named);
    const auto renewed = run(manager_->renew(named->claims, 2s, {}));
    ASSERT_TRUE(renewed);
    EXPECT_EQ(renewed->claims.token, named->claims.token);
    const auto further = take({.owner = "worker-1"});
    ASSERT_TRUE(further);
    EXPECT_TRUE(further->reentrant);
    EXPECT_EQ(further->claims.attempt_id, named->claims.attempt_id);
    EXPECT_EQ(run(manager_->inspect(named->claims))->hold_count, 2U);
    const auto keyed = take({.key = "k"}), repeated = take({.key = "k"});
    ASSERT_TRUE(keyed && repeated);
    EXPECT_TRUE(repeated->repeated);
    EXPECT_EQ(repeated->claims, keyed->claims);
    EXPECT_EQ(find().total, 2U);
}

TEST_F(managed_sharing, request_is_cancelled_by_its_key_and_others_stay) {
    const auto other = take({});
    const auto keyed = take({.key = "k"});
    ASSERT_TRUE(other && keyed);
    ASSERT_TRUE(run(make_another()->manager().cancel(request({.key = "k"}))));
    EXPECT_FALSE(run(manager_->inspect(keyed->claims)));
    EXPECT_TRUE(run(manager_->inspect(other->claims)));
}

TEST_F(managed_sharing, revocation_of_one_holder_is_noticed_and_leaves_the_others) {
    const auto other = take({}), revoked = take({});
    ASSERT_TRUE(other && revoked);
    auto request_kept = request({});
    request_kept.kept = true;
    const auto kept = run(manager_->acquire(request_kept));
    ASSERT_TRUE(kept);
    auto watching = asio::co_spawn(io_, manager_->watch(revoked->claims, 1500ms), asio::use_future);
    auto keeping = asio::co_spawn(io_, manager_->keep(kept_lease(*kept), {}), asio::use_future);
    const auto another = make_another();
    const auto seen = another->run(another->manager().find_leases(prices_, 100)).value();
    ASSERT_EQ(seen.total, 3U);
    for (const live_lease& l : seen.leases) {
        if (l.claims.attempt_id == other->claims.attempt_id) continue;
        ASSERT_TRUE(another->run(another->manager().revoke(l.claims, {})));
    }
    EXPECT_EQ(watching.get()->result, watch_step::outcome::lost);
    EXPECT_EQ(keeping.get()->result, keep_step::outcome::lost);
    EXPECT_TRUE(run(manager_->inspect(other->claims)));
    EXPECT_EQ(find().total, 1U);
}

TEST_F(managed_sharing, kept_lease_of_a_holder_is_renewed) {
    auto kept_request = request({.ttl = 600ms});
    kept_request.kept = true;
    const auto granted = run(manager_->acquire(kept_request));
    ASSERT_TRUE(granted);
    const auto step = run(manager_->keep(kept_lease(*granted), {}));
    ASSERT_TRUE(step);
    EXPECT_EQ(step->result, keep_step::outcome::renewed);
    EXPECT_EQ(step->kept.current.claims, granted->claims);
}

TEST_F(managed_sharing, expired_holders_exclude_nobody) {
    ASSERT_TRUE(take({.ttl = 300ms}));
    ASSERT_TRUE(take({.ttl = 300ms}));
    EXPECT_TRUE(take(exclusive(2s)));
    EXPECT_FALSE(find().shared);
}

TEST_F(managed_sharing, one_of_three_nodes_may_be_killed) {
    const auto a = take({}), b = take({});
    ASSERT_TRUE(a && b);
    servers_.kill(1);
    EXPECT_TRUE(run(manager_->renew(a->claims, 2s, {})));
    EXPECT_TRUE(take({}));
    EXPECT_EQ(find().total, 3U);
    EXPECT_EQ(run(manager_->list_leases({}))->leases.size(), 3U);
    EXPECT_FALSE(take(exclusive()));
    ASSERT_TRUE(release(*b));
    EXPECT_EQ(find().total, 2U);
}

TEST_F(managed_sharing, exclusive_waiter_is_served_while_readers_keep_coming) {
    const auto another = make_another();
    std::atomic<bool> stopped = false;
    std::atomic<int> granted = 0;
    const auto read = [&] {
        while (!stopped) {
            const auto l = another->acquire(request({.wait = 0s}));
            if (l) ++granted;
            // So long that the leases of the readers overlap.
            std::this_thread::sleep_for(40ms);
            if (l) (void)another->release(*l);
        }
    };
    std::vector<std::thread> readers;
    for (int i = 0; i < 4; ++i)
        readers.emplace_back(read);
    EXPECT_TRUE(eventually([&] { return granted >= 20; }));
    const auto begun = std::chrono::steady_clock::now();
    auto writer = start(exclusive(2s));
    const auto outcome = writer.get();
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 1s);
    EXPECT_TRUE(outcome && release(*outcome));
    const int before = granted;
    EXPECT_TRUE(eventually([&] { return granted >= before + 4; })) << "and the readers go on";
    stopped = true;
    for (std::thread& reader : readers)
        reader.join();
}

TEST_F(managed_sharing, waiting_readers_get_the_lease_together_without_much_polling) {
    const auto another = make_another();
    const auto writer = another->acquire(request(exclusive()));
    ASSERT_TRUE(writer);
    constexpr std::size_t waiting = 50;
    std::vector<std::future<result<lease>>> readers;
    for (std::size_t i = 0; i < waiting; ++i)
        readers.push_back(start({.wait = 5s}));
    ASSERT_TRUE(eventually([&] { return manager_->waiters() == waiting; }));
    const std::uint64_t before = scripts_run();
    // For the polls of this time.
    std::this_thread::sleep_for(700ms);
    EXPECT_LT(scripts_run() - before, 40U);
    const auto begun = std::chrono::steady_clock::now();
    ASSERT_TRUE(another->release(*writer));
    for (auto& reader : readers)
        EXPECT_TRUE(reader.get());
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 1s);
}

TEST_F(managed_sharing, waiters_are_served_in_order_of_arrival) {
    const auto reader = take({});
    ASSERT_TRUE(reader);
    auto writer = start(exclusive(5s));
    ASSERT_TRUE(eventually([&] { return manager_->waiters() == 1; }));
    auto later = start({.wait = 5s});
    ASSERT_TRUE(eventually([&] { return manager_->waiters() == 2; }));
    ASSERT_TRUE(release(*reader));
    const auto written = writer.get();
    ASSERT_TRUE(written);
    EXPECT_EQ(later.wait_for(0s), std::future_status::timeout);
    ASSERT_TRUE(release(*written));
    const auto read = later.get();
    ASSERT_TRUE(read);
    EXPECT_GT(read->claims.token, written->claims.token);
}

/// Leases that live longer than a test, and nodes for which FAST READMISSION is the only way back.
class managed_sharing_long : public ::testing::Test {
  protected:
    managed_sharing_long() : host_(settings(servers_), epochs_) {
        wanted_.shared = {prices_};
        wanted_.holder.principal = "tests";
        EXPECT_TRUE(all_vote());
    }
    static config settings(const redis_nodes& servers) {
        config cfg = servers.config();
        cfg.max_ttl = 60s;
        cfg.default_ttl = 30s;
        return cfg;
    }
    bool all_vote() {
        return fencegate::testing::eventually([&] { return host_.voting_count() == servers_.size(); }, 20s);
    }

    const resource_name prices_ = *resource_name::parse("prices/eu");
    redis_nodes servers_{3};
    memory_register epochs_;
    lock_host host_;
    acquire_request wanted_;
};

TEST_F(managed_sharing_long, node_that_forgot_counts_for_holders_after_fast_readmission) {
    const auto a = host_.acquire(wanted_), b = host_.acquire(wanted_);
    ASSERT_TRUE(a && b);
    servers_.kill(0);
    servers_.start(0);
    ASSERT_TRUE(fencegate::testing::eventually([&] { return host_.voting_count() == 2; }));
    ASSERT_TRUE(all_vote());
    servers_.kill(1);
    for (const auto& l : {a, b})
        EXPECT_TRUE(host_.run(host_.manager().renew(l->claims, 30s, {}))) << "by the node that forgot, and another one";
    acquire_request alone;
    alone.resources = wanted_.shared;
    alone.holder = wanted_.holder;
    EXPECT_FALSE(host_.acquire(alone));
    EXPECT_EQ(host_.run(host_.manager().find_leases(prices_, 100))->total, 2U);
}

TEST_F(managed_sharing_long, holder_on_a_minority_is_found_as_leaked) {
    const auto a = host_.acquire(wanted_), b = host_.acquire(wanted_);
    ASSERT_TRUE(a && b);
    for (const std::size_t n : {1U, 2U})
        servers_.command(n, {"DEL", R"("fg:lease:prices/eu\t)" + std::string(b->claims.attempt_id.str()) + '"'});
    const auto report = host_.run(host_.manager().find_leaks());
    ASSERT_TRUE(report);
    EXPECT_EQ(report->held_by_minority, 1U);
    EXPECT_EQ(report->minority_examples, names{"prices/eu"});
}

}  // namespace
}  // namespace lockcore
