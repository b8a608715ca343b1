#include <gateway/api/writes/guarded_write.hpp>

#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::api {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

/// Leases that the test grants or refuses, and a database that answers as the test says. A write is known by its
/// trace_id.
class fake_queue final : public write_ports, private seal_ports {
  public:
    explicit fake_queue(asio::io_context& io) : io_(io) {}

    std::map<std::string, failure> refused{};  ///< By write.
    bool seals_writes = true;                  ///< Whether the writes of a group stay in one transaction.
    bool throws = false;
    bool reentrant = false;
    bool closes = true;  ///< Whether close_to_new_holds() succeeds.
    bool held = false;   ///< Writes wait for finish_writes().
    release_report released{true, 0};
    std::chrono::milliseconds validity{10'000};  ///< Of the leases that are granted.
    time_point latest = time_point::min();       ///< The latest deadline of a write.

    std::vector<std::vector<std::string>> groups{};  ///< The writes that ran together.
    std::vector<std::string> sealing{};              ///< The writes that were to seal the token.
    std::map<std::string, std::uint64_t> tokens{};
    std::size_t releases = 0, seals_after = 0, cancelled = 0, proofs = 0;

    /// Ends the acquisition of a write: with a lease, or with a refusal.
    void grant(const std::string& id) { settle(id, std::nullopt); }
    void refuse(const std::string& id) { settle(id, make_failure(errc::resource_locked, "held")); }
    bool acquires(const std::string& id) const { return acquiring_.contains(id); }
    void finish_writes() { writing_->cancel(); }

    awaitable<result<std::optional<write_outcome>>> find_outcome(std::string, idempotency_key, time_point) override {
        co_return std::nullopt;
    }
    awaitable<result<pg::committed_write>> write(write_request request, time_point until) override {
        std::vector<pg::timed_write> writes;
        writes.push_back({std::move(request), until});
        auto written = co_await write_together(std::move(writes));
        co_return std::move(written.front());
    }
    awaitable<std::vector<result<pg::committed_write>>> write_together(std::vector<pg::timed_write> writes) override {
        if (held) {
            boost::system::error_code ignored;
            writing_.emplace(io_, asio::steady_timer::time_point::max());
            co_await writing_->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
        }
        if (throws) throw std::runtime_error("no memory");
        auto& group = groups.emplace_back();
        std::vector<result<pg::committed_write>> out;
        for (const auto& [request, until] : writes) {
            const auto& id = request.initiator.trace_id;
            latest = std::max(latest, until);
            group.push_back(id);
            if (request.seal) sealing.push_back(id);
            tokens[id] = lockcore::value_of(request.token);
            const auto why = refused.find(id);
            if (why != refused.end()) {
                out.emplace_back(why->second);
                continue;
            }
            pg::committed_write done;
            done.outcome.write_id = request.write_id;
            done.outcome.token = request.token;
            done.outcome.sealed = request.seal && seals_writes;
            out.emplace_back(std::move(done));
        }
        co_return out;
    }
    awaitable<std::optional<failure>> require_durable(time_point, time_point) override {
        ++proofs;
        co_return std::nullopt;
    }
    seal_ports& seals() override { return *this; }
    awaitable<result<lockcore::lease>> acquire(lockcore::acquire_request request) override {
        auto& call = *acquiring_.emplace(request.trace_id, std::make_unique<acquisition>(io_)).first->second;
        boost::system::error_code ended;
        co_await call.answer.async_wait(asio::redirect_error(asio::use_awaitable, ended));
        const auto why = call.why;
        const bool settled = call.settled;
        acquiring_.erase(request.trace_id);
        if (!settled) {
            ++cancelled;
            co_return make_failure(errc::shutting_down, "cancelled");
        }
        if (why) co_return *why;
        lockcore::lease out;
        out.claims.resources = request.resources;
        out.claims.holder = request.holder;
        out.claims.token = lockcore::fencing_token{++token_};
        out.reentrant = reentrant;
        out.validity = validity;
        co_return out;
    }
    awaitable<result<void>> require_live(lockcore::lease_claims) override { co_return result<void>(); }
    awaitable<release_report> release(lockcore::lease_claims, std::string) override {
        ++releases;
        co_return released;
    }

  private:
    struct acquisition {
        explicit acquisition(asio::io_context& io) : answer(io, asio::steady_timer::time_point::max()) {}
        asio::steady_timer answer;
        std::optional<failure> why{};
        bool settled = false;
    };

    awaitable<lockcore::result<lockcore::close_outcome>> close_to_new_holds(lockcore::lease_claims) override {
        if (!closes) co_return lockcore::failure{lockcore::errc::no_quorum, "close", {}, 0, {}};
        lockcore::close_outcome out;
        out.closed = true;
        co_return out;
    }
    void reopen(lockcore::lease_claims, lockcore::close_outcome) override {}
    awaitable<result<void>> raise_above(lockcore::lease_claims, actor, time_point) override {
        ++seals_after;
        co_return result<void>();
    }

    void settle(const std::string& id, std::optional<failure> why) {
        auto& call = *acquiring_.at(id);
        call.why = std::move(why);
        call.settled = true;
        call.answer.cancel();
    }

    asio::io_context& io_;
    std::map<std::string, std::unique_ptr<acquisition>> acquiring_;
    std::optional<asio::steady_timer> writing_;
    std::uint64_t token_ = 100;
};

/// Awaits execute_write with cancellation that does not throw, as the server does for handlers.
awaitable<result<write_report>> execute(write_ports& ports, waiting_writes& waiting, write_context context) {
    co_await asio::this_coro::reset_cancellation_state(asio::enable_terminal_cancellation());
    co_await asio::this_coro::throw_if_cancelled(false);
    co_return co_await execute_write(ports, waiting, std::move(context));
}

class one_shot_groups : public ::testing::Test {
  protected:
    struct options {
        std::string owner = "";
        std::vector<std::string> resources = {"a"};
        std::size_t operations = 1;
        bool calls = false;
        std::chrono::seconds time{60};  ///< Until its deadline.
    };

    void send(const std::string& id, const options& given) {
        write_context context;
        context.request.principal = "orders";
        context.request.trace_id = id;
        context.request.deadline = std::chrono::steady_clock::now() + given.time;
        context.request.rights = std::make_shared<http::rights>();
        auto& wanted = context.call.own_lease.emplace();
        wanted.holder = {"orders", given.owner};
        wanted.trace_id = id;
        for (const auto& name : given.resources)
            wanted.resources.push_back(lockcore::resource_name::parse(name).value());
        context.call.operations.resize(given.operations);
        if (given.calls) context.call.operations.front() = call_operation{};
        auto done = [this, id](const std::exception_ptr& thrown, auto report) {
            if (thrown) {
                threw.push_back(id);
            } else {
                reports.emplace(id, std::move(report));
            }
        };
        asio::co_spawn(io, execute(ports, waiting, std::move(context)),
                       asio::bind_cancellation_slot(hang_ups[id].slot(), std::move(done)));
        run();
    }
    void send(const std::string& id) { send(id, options()); }
    void send_all(const std::vector<std::string>& ids) {
        for (const auto& id : ids)
            send(id);
    }
    void grant(const std::string& id) {
        ports.grant(id);
        run();
    }
    void refuse(const std::string& id) {
        ports.refuse(id);
        run();
    }
    void hang_up(const std::string& id) {
        hang_ups[id].emit(asio::cancellation_type::terminal);
        run();
    }
    void run() {
        io.restart();
        io.poll();
    }
    bool is_applied(const std::string& id) const { return reports.contains(id) && reports.at(id).has_value(); }

    asio::io_context io;
    fake_queue ports{io};
    waiting_writes waiting;
    std::map<std::string, asio::cancellation_signal> hang_ups;
    std::map<std::string, result<write_report>> reports;
    std::vector<std::string> threw;
};

using writes = std::vector<std::string>;

TEST_F(one_shot_groups, group_ends_with_its_lease_and_its_first_deadline) {
    using namespace std::chrono_literals;
    send_all({"1", "2"});
    grant("1");
    EXPECT_LE(ports.latest, std::chrono::steady_clock::now() + 10s) << "the validity";
    ports.latest = {};
    send("3", {.time = 5s});
    send("4");
    grant("4");
    EXPECT_LE(ports.latest, std::chrono::steady_clock::now() + 5s) << "the deadline of one is that of all";
    send("5");
    grant("5");
    EXPECT_GT(ports.latest, std::chrono::steady_clock::now() + 50s) << "alone it has its own";
}

TEST_F(one_shot_groups, waiting_writes_share_the_lease) {
    send_all({"1", "2", "3"});
    grant("1");
    EXPECT_EQ(ports.groups, (std::vector<writes>{{"1", "2", "3"}}));
    EXPECT_EQ(ports.sealing, (writes{"1", "2", "3"})) << "the transaction seals the token once";
    EXPECT_EQ(ports.releases, 1U);
    EXPECT_EQ(ports.cancelled, 2U) << "the others leave the queue";
    std::vector<std::string> ids;
    for (const auto& [id, report] : reports) {
        ASSERT_TRUE(report) << id;
        EXPECT_TRUE(report->own_lease && report->release->released && report->outcome.sealed);
        EXPECT_EQ(lockcore::value_of(report->outcome.token), 101U);
        ids.push_back(report->outcome.write_id);
    }
    EXPECT_EQ(ids.size(), 3U);
    EXPECT_TRUE(ids[0] != ids[1] && ids[1] != ids[2]) << "each write has its own write_id";
    send("4");
    grant("4");
    EXPECT_EQ(ports.tokens["4"], 102U) << "the next group has the next lease";
}

TEST_F(one_shot_groups, any_granted_first_order_of_arrival_kept) {
    send_all({"1", "2", "3"});
    grant("3");
    EXPECT_EQ(ports.groups, (std::vector<writes>{{"1", "2", "3"}}));
}

TEST_F(one_shot_groups, other_holder_resources_ttl_not_shared) {
    send("1");
    send("2", {.owner = "another"});
    send("3", {.resources = {"a", "b"}});
    send("4", {.resources = {"b"}});
    send("5", {.resources = {"b", "a"}});
    grant("1");
    EXPECT_EQ(ports.groups, (std::vector<writes>{{"1"}}));
    grant("3");
    EXPECT_EQ(ports.groups.back(), (writes{"3", "5"})) << "the order of the names says nothing";
    EXPECT_TRUE(ports.acquires("2") && ports.acquires("4"));
    refuse("2");
    refuse("4");
}

TEST_F(one_shot_groups, group_has_64_writes) {
    writes ids;
    for (int i = 100; i < 200; ++i)
        ids.push_back(std::to_string(i));
    send_all(ids);
    grant("100");
    EXPECT_EQ(ports.groups.front(), writes(ids.begin(), ids.begin() + 64));
    grant("164");
    EXPECT_EQ(ports.groups.back(), writes(ids.begin() + 64, ids.end()));
    EXPECT_EQ(reports.size(), 100U);
}

TEST_F(one_shot_groups, operations_of_one_transaction_end_a_group) {
    send("1", {.operations = 64});
    send("2", {.operations = 64});
    send("3", {.operations = 2});
    send("4");
    grant("1");
    EXPECT_EQ(ports.groups.back(), (writes{"1", "2"}));
    grant("3");
    EXPECT_EQ(ports.groups.back(), (writes{"3", "4"}));
}

TEST_F(one_shot_groups, function_runs_alone) {
    send("1");
    send("2", {.calls = true});
    send("3");
    grant("1");
    EXPECT_EQ(ports.groups.back(), (writes{"1", "3"}));
    send("4");
    grant("2");
    EXPECT_EQ(ports.groups.back(), writes{"2"});
    grant("4");
}

TEST_F(one_shot_groups, each_refused_for_itself) {
    send_all({"1", "2", "3"});
    ports.refused["2"] = make_failure(errc::expectation_failed, "sold out");
    ports.refused["2"].durability_unproven = true;
    grant("1");
    EXPECT_EQ(ports.proofs, 1U) << "after the release it waits until what it has seen is on disk";
    EXPECT_TRUE(is_applied("1") && is_applied("3"));
    EXPECT_EQ(reports.at("2").error().detail, "sold out");
    EXPECT_TRUE(reports.at("2").error().facts.contains("write_id"));
    EXPECT_EQ(ports.releases, 1U);
    EXPECT_EQ(ports.seals_after, 0U);
}

TEST_F(one_shot_groups, all_refused_lease_released) {
    send_all({"1", "2"});
    for (const auto* id : {"1", "2"})
        ports.refused[id] = make_failure(errc::expectation_failed, "sold out");
    grant("1");
    EXPECT_EQ(ports.releases, 1U);
    EXPECT_EQ(ports.seals_after, 0U) << "nothing was written with the token";
    EXPECT_FALSE(is_applied("1") || is_applied("2"));
}

TEST_F(one_shot_groups, unsealed_group_sealed_once_after_release) {
    send_all({"1", "2", "3"});
    ports.seals_writes = false;
    ports.refused["3"] = make_failure(errc::constraint_violation, "null");
    grant("1");
    EXPECT_EQ(ports.seals_after, 1U);
    EXPECT_TRUE(reports.at("1")->outcome.sealed && reports.at("2")->outcome.sealed);
}

TEST_F(one_shot_groups, unknown_outcome_of_one_lease_left_to_expire) {
    send_all({"1", "2"});
    failure unknown = make_failure(errc::storage_unavailable, "broke");
    unknown.outcome_unknown = true;
    ports.refused["2"] = unknown;
    grant("1");
    EXPECT_EQ(ports.releases, 0U);
    ASSERT_TRUE(is_applied("1"));
    EXPECT_FALSE(reports.at("1")->release->released);
    EXPECT_TRUE(reports.at("2").error().outcome_unknown);
}

TEST_F(one_shot_groups, refused_acquisition_concerns_one_write) {
    send_all({"1", "2", "3"});
    refuse("1");
    EXPECT_EQ(reports.at("1").error().code, errc::resource_locked);
    EXPECT_TRUE(ports.acquires("2")) << "it keeps its place in the queue";
    grant("2");
    EXPECT_EQ(ports.groups, (std::vector<writes>{{"2", "3"}}));
}

TEST_F(one_shot_groups, caller_hangs_up_the_others_stay) {
    send_all({"1", "2", "3"});
    hang_up("1");
    EXPECT_EQ(reports.at("1").error().code, errc::shutting_down);
    hang_up("3");
    grant("2");
    EXPECT_EQ(ports.groups, (std::vector<writes>{{"2"}}));
    EXPECT_EQ(ports.releases, 1U);
}

TEST_F(one_shot_groups, taken_write_ends_although_its_caller_hangs_up) {
    send_all({"1", "2"});
    ports.held = true;
    grant("1");
    hang_up("2");
    hang_up("1");
    EXPECT_TRUE(reports.empty());
    ports.finish_writes();
    run();
    EXPECT_TRUE(is_applied("1") && is_applied("2"));
}

TEST_F(one_shot_groups, taken_write_releases_a_lease_of_its_own) {
    send_all({"1", "2"});
    ports.grant("1");
    ports.grant("2");
    run();
    EXPECT_EQ(ports.groups, (std::vector<writes>{{"1", "2"}}));
    EXPECT_EQ(ports.releases, 2U);
    EXPECT_TRUE(is_applied("1") && is_applied("2"));
}

TEST_F(one_shot_groups, seal_not_prepared_none_written) {
    send_all({"1", "2"});
    ports.reentrant = true;
    ports.closes = false;
    grant("1");
    EXPECT_TRUE(ports.groups.empty());
    EXPECT_EQ(ports.releases, 1U);
    for (const auto& [id, report] : reports)
        EXPECT_EQ(report.error().detail, "close") << id;
    EXPECT_EQ(reports.size(), 2U);
}

TEST_F(one_shot_groups, exception_answers_those_that_were_taken) {
    send_all({"1", "2", "3"});
    ports.throws = true;
    grant("1");
    EXPECT_EQ(threw, writes{"1"});
    ASSERT_EQ(reports.size(), 2U);
    EXPECT_TRUE(reports.at("2").error().outcome_unknown);
}

}  // namespace
}  // namespace fencegate::api
