#pragma once

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

namespace fencegate::api::test {

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
    bool cancelled_throws = false;  ///< A cancelled acquisition throws.
    bool ignores_cancel = false;    ///< An acquisition goes on after its cancellation.
    bool reentrant = false;
    bool closes = true;  ///< Whether close_to_new_holds() succeeds.
    bool release_throws = false;
    bool held = false;  ///< Writes wait for finish_writes().
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
        auto& call = *acquiring_.emplace(request.origin, std::make_unique<acquisition>(io_)).first->second;
        boost::system::error_code ended;
        do {
            co_await call.answer.async_wait(asio::redirect_error(asio::use_awaitable, ended));
        } while (ignores_cancel && !call.settled);
        const auto why = call.why;
        const bool settled = call.settled;
        acquiring_.erase(request.origin);
        if (!settled) {
            ++cancelled;
            if (cancelled_throws) throw std::runtime_error("no memory");
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
        if (release_throws) throw std::runtime_error("no memory");
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
inline awaitable<result<write_report>> execute(write_ports& ports, waiting_writes& waiting, write_context context) {
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
        context.request.origin = id;
        context.request.deadline = std::chrono::steady_clock::now() + given.time;
        context.request.rights = std::make_shared<http::rights>();
        auto& wanted = context.call.own_lease.emplace();
        wanted.holder = {"orders", given.owner};
        wanted.origin = id;
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

}  // namespace fencegate::api::test
