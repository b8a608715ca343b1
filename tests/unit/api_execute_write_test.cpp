#include <gateway/api/writes/guarded_write.hpp>

#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::api {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

lockcore::lease_claims make_claims() {
    lockcore::lease_claims out;
    out.resources.push_back(lockcore::resource_name::parse("a").value());
    out.token = lockcore::fencing_token{7};
    out.may_be_shared = true;
    return out;
}

write_outcome make_earlier() {
    write_outcome out;
    out.write_id = "0";
    return out;
}

/// How a step fails.
enum class fault { none, refused, unknown };

/// Leases and a database of which one step fails. Logs the steps in order.
class fake_ports final : public write_ports, private seal_ports {
  public:
    explicit fake_ports(asio::io_context& io) : io_(io) {}

    std::string failing{};  ///< The step.
    fault kind = fault::refused;
    std::optional<result<write_outcome>> earlier{};
    bool reentrant = false;   ///< Whether acquire() returns another hold of a re-entrant lease.
    bool last_hold = true;    ///< The answer of close_to_new_holds().
    bool fast_answer = true;  ///< Whether a sealed write returns before it is on disk.
    release_report released{true, 0};
    std::function<void()> on_acquire{};

    std::vector<std::string> log{};
    std::optional<write_request> written{};

    awaitable<result<std::optional<write_outcome>>> find_outcome(std::string, idempotency_key, time_point) override {
        if (const auto error = fails("find")) co_return *error;
        if (!earlier) co_return std::nullopt;
        if (!*earlier) co_return earlier->error();
        co_return std::optional(earlier->value());
    }
    awaitable<result<pg::committed_write>> write(write_request request, time_point) override {
        written = request;
        if (const auto error = fails("write")) co_return *error;
        pg::committed_write out;
        out.outcome.write_id = request.write_id;
        out.outcome.token = request.token;
        out.outcome.sealed = request.seal;
        const auto lost = fails("disk");
        if (request.seal && fast_answer) {
            out.durability = std::make_shared<pg::durability_waiter>(io_.get_executor());
            out.durability->answer(lost);
        } else if (lost) {
            co_return *lost;
        }
        co_return out;
    }
    awaitable<std::vector<result<pg::committed_write>>> write_together(std::vector<pg::timed_write>) override {
        ADD_FAILURE() << "a single write shares nothing";
        co_return std::vector<result<pg::committed_write>>();
    }
    awaitable<std::optional<failure>> require_durable(time_point, time_point) override { co_return std::nullopt; }
    seal_ports& seals() override { return *this; }
    awaitable<result<lockcore::lease>> acquire(lockcore::acquire_request) override {
        if (const auto error = fails("acquire")) co_return *error;
        if (on_acquire) on_acquire();
        lockcore::lease out;
        out.claims = make_claims();
        out.reentrant = reentrant;
        co_return out;
    }
    awaitable<result<void>> require_live(lockcore::lease_claims) override {
        if (const auto error = fails("live")) co_return *error;
        co_return result<void>();
    }
    awaitable<release_report> release(lockcore::lease_claims, std::string) override {
        log.emplace_back("release");
        co_return released;
    }

    bool has_run(const std::string& step) const { return std::ranges::find(log, step) != log.end(); }

  private:
    awaitable<lockcore::result<lockcore::close_outcome>> close_to_new_holds(lockcore::lease_claims) override {
        if (const auto error = fails("close"))
            co_return lockcore::failure{lockcore::errc::no_quorum, error->detail, {}, 0, {}};
        lockcore::close_outcome out;
        out.closed = last_hold;
        co_return out;
    }
    void reopen(lockcore::lease_claims, lockcore::close_outcome) override { log.emplace_back("reopen"); }
    awaitable<result<void>> raise_above(lockcore::lease_claims, actor, std::chrono::steady_clock::time_point) override {
        if (const auto error = fails("seal")) co_return *error;
        co_return result<void>();
    }

    std::optional<failure> fails(const std::string& step) {
        log.push_back(step);
        if (step != failing) return std::nullopt;
        failure out = make_failure(errc::storage_unavailable, step);
        out.outcome_unknown = kind == fault::unknown;
        return out;
    }

    asio::io_context& io_;
};

class execute_write_test : public ::testing::Test {
  protected:
    result<write_report> run(fake_ports& used) {
        std::optional<result<write_report>> got;
        asio::co_spawn(io, execute_write(used, waiting, context),
                       [&got](const std::exception_ptr& thrown, auto report) {
                           if (thrown) std::rethrow_exception(thrown);
                           got = std::move(report);
                       });
        io.restart();
        io.run();
        return std::move(got).value();
    }

    void set_caller_lease() {
        context.caller_claims = make_claims();
        context.call.lease_id = "lease";
    }
    void set_own_lease() { context.call.own_lease.emplace(); }
    void add_key() { context.key = idempotency_key{"k", "f", std::chrono::milliseconds(5)}; }

    asio::io_context io;
    fake_ports ports{io};
    waiting_writes waiting;
    write_context context;
};

using steps = std::vector<std::string>;

TEST_F(execute_write_test, caller_lease_only_written) {
    set_caller_lease();
    const auto report = run(ports);
    ASSERT_TRUE(report);
    EXPECT_FALSE(report->release);
    EXPECT_EQ(ports.log, (steps{"write", "disk"}));
    EXPECT_FALSE(ports.written->seal);
}

TEST_F(execute_write_test, bare_token_history_says_so) {
    context.caller_claims = make_claims();
    ASSERT_TRUE(run(ports));
    EXPECT_TRUE(ports.written->bare_token);
}

TEST_F(execute_write_test, then_release_sealed_and_released_after_the_flush) {
    set_caller_lease();
    context.call.then_release = true;
    const auto report = run(ports);
    ASSERT_TRUE(report);
    EXPECT_TRUE(report->release->released && report->outcome.sealed);
    EXPECT_EQ(ports.log, (steps{"close", "write", "disk", "release"}));
}

TEST_F(execute_write_test, then_release_each_step_fails_lease_kept) {
    for (const auto* failing : {"live", "find", "close", "write", "disk"}) {
        for (const auto kind : {fault::refused, fault::unknown}) {
            fake_ports failed(io);
            failed.failing = failing;
            failed.kind = kind;
            context = {};
            set_caller_lease();
            add_key();
            context.call.then_release = context.call.require_live = true;
            const auto report = run(failed);
            ASSERT_FALSE(report) << failing;
            EXPECT_EQ(report.error().detail, failing);
            EXPECT_FALSE(failed.has_run("release"));
            const bool begun = failing == std::string("write") || failing == std::string("disk");
            EXPECT_EQ(failed.has_run("reopen"), begun && kind == fault::refused) << failing;
            EXPECT_EQ(report.error().facts.contains("write_id"), begun) << failing;
        }
    }
}

TEST_F(execute_write_test, other_holds_left_sealed_after_the_last) {
    set_caller_lease();
    context.call.then_release = true;
    ports.last_hold = false;
    auto report = run(ports);
    ASSERT_TRUE(report);
    EXPECT_EQ(ports.log, (steps{"close", "write", "disk", "release", "seal"}));
    EXPECT_TRUE(report->outcome.sealed) << "the others were released meanwhile";
    fake_ports held(io);
    held.last_hold = false;
    held.released = {false, 2};
    context = {};
    set_caller_lease();
    context.call.then_release = true;
    report = run(held);
    EXPECT_FALSE(held.has_run("seal") || report->outcome.sealed);
    EXPECT_EQ(report->release->holds_left, 2U);
    fake_ports refused(io);
    refused.last_hold = false;
    refused.failing = "seal";
    context = {};
    set_caller_lease();
    context.call.then_release = true;
    report = run(refused);
    ASSERT_TRUE(report) << "the write was done";
    EXPECT_FALSE(report->outcome.sealed);
}

TEST_F(execute_write_test, key_known_nothing_written) {
    add_key();
    ports.earlier = make_earlier();
    set_own_lease();
    auto report = run(ports);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->outcome.write_id, "0");
    EXPECT_TRUE(report->release->released);
    EXPECT_EQ(ports.log, steps{"find"});
    fake_ports refused(io);
    refused.earlier = make_failure(errc::constraint_violation, "kept");
    context = {};
    add_key();
    set_own_lease();
    EXPECT_EQ(run(refused).error().detail, "kept");
    EXPECT_EQ(refused.log, steps{"find"});
}

TEST_F(execute_write_test, key_known_caller_lease_still_released) {
    set_caller_lease();
    add_key();
    context.call.then_release = context.call.require_live = true;
    ports.earlier = make_earlier();
    ports.earlier->value().sealed = true;
    ports.earlier->value().token = make_claims().token;
    const auto report = run(ports);
    ASSERT_TRUE(report);
    EXPECT_EQ(ports.log, (steps{"find", "release"}));
}

TEST_F(execute_write_test, key_known_of_another_lease_token_sealed_after_release) {
    set_caller_lease();
    add_key();
    context.call.then_release = context.call.require_live = true;
    ports.earlier = make_earlier();
    ports.earlier->value().sealed = true;
    ports.earlier->value().token = lockcore::fencing_token{5};
    const auto report = run(ports);
    ASSERT_TRUE(report);
    EXPECT_TRUE(report->outcome.sealed);
    EXPECT_EQ(ports.log, (steps{"find", "release", "seal"}));
}

TEST_F(execute_write_test, own_lease_released_before_the_flush) {
    set_own_lease();
    const auto report = run(ports);
    ASSERT_TRUE(report);
    EXPECT_TRUE(report->own_lease && report->outcome.sealed && report->release->released);
    EXPECT_EQ(ports.log, (steps{"acquire", "write", "disk", "release"}));
    EXPECT_TRUE(ports.written->seal);
}

TEST_F(execute_write_test, own_lease_each_step_fails_released_unless_unknown) {
    for (const auto* failing : {"find", "acquire", "close", "write", "disk"}) {
        for (const auto kind : {fault::refused, fault::unknown}) {
            fake_ports failed(io);
            failed.failing = failing;
            failed.kind = kind;
            failed.reentrant = true;
            context = {};
            add_key();
            set_own_lease();
            const auto report = run(failed);
            ASSERT_FALSE(report) << failing;
            EXPECT_EQ(report.error().detail, failing);
            const std::string step = failing;
            const bool lease_released = step == "close" || step == "disk";
            EXPECT_EQ(failed.has_run("release"), lease_released || (step == "write" && kind == fault::refused)) << step;
            EXPECT_EQ(failed.has_run("write"), step == "write" || step == "disk") << step;
        }
    }
}

/// Awaits execute_write with cancellation that does not throw, as the server does for handlers.
awaitable<result<write_report>> execute_without_throwing(write_ports& ports, waiting_writes& waiting,
                                                         write_context context) {
    co_await asio::this_coro::throw_if_cancelled(false);
    co_return co_await execute_write(ports, waiting, std::move(context));
}

TEST_F(execute_write_test, own_lease_caller_hangs_up_released_unused) {
    set_own_lease();
    asio::cancellation_signal signal;
    std::optional<result<write_report>> got;
    asio::co_spawn(io, execute_without_throwing(ports, waiting, context),
                   asio::bind_cancellation_slot(signal.slot(), [&got](const std::exception_ptr& thrown, auto report) {
                       if (!thrown) got = std::move(report);
                   }));
    ports.on_acquire = [&signal] { signal.emit(asio::cancellation_type::terminal); };
    io.restart();
    io.run();
    ASSERT_TRUE(got);
    EXPECT_FALSE(*got);
    EXPECT_TRUE(ports.has_run("release"));
    EXPECT_FALSE(ports.has_run("write"));
}

}  // namespace
}  // namespace fencegate::api
