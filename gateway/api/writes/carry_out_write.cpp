#include <gateway/api/writes/carry_out_write.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/leases/lock_failures.hpp>
#include <gateway/api/writes/fencing.hpp>
#include <gateway/api/writes/idempotency.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/problem.hpp>
#include <gateway/http/routing/auth.hpp>
#include <gateway/pg/write/write_executor.hpp>

#include <lockcore/lock_manager.hpp>

#include <boost/asio/this_coro.hpp>

namespace fencegate::api {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

/// The gateway's own leases and database.
class service_ports final : public write_ports {
  public:
    explicit service_ports(services with) : with_(with) {}

    awaitable<result<found_outcome>> find_outcome(std::string principal, idempotency key, time_point until) override {
        return with_.writes.find_outcome(std::move(principal), std::move(key), until);
    }
    awaitable<result<pg::committed_write>> write(write_request request, time_point until) override {
        return with_.writes.write(std::move(request), until);
    }
    result<void> check_room() override { return check_room_for_leases(with_); }
    awaitable<result<seal_decision>> prepare_seal(lockcore::lease_claims claims) override {
        return api::prepare_seal(with_, std::move(claims));
    }
    void abandon_seal(const lockcore::lease_claims& claims, const seal_decision& decision) override {
        api::abandon_seal(with_, claims, decision);
    }
    awaitable<result<void>> seal_token(lockcore::lease_claims claims, actor acting, time_point until) override {
        return api::seal_token(with_, std::move(claims), std::move(acting), until);
    }
    awaitable<void> give_back(lockcore::lease_claims claims, std::string trace_id) override {
        return api::give_back(with_, std::move(claims), std::move(trace_id));
    }
    awaitable<result<lockcore::lease>> acquire(lockcore::acquire_request request) override {
        auto granted = co_await with_.locks.acquire(std::move(request));
        if (!granted) co_return to_failure(granted.error());
        co_return std::move(*granted);
    }
    awaitable<result<void>> require_live(lockcore::lease_claims claims) override {
        const auto seen = co_await with_.locks.inspect(std::move(claims));
        if (!seen) co_return to_failure(seen.error());
        co_return result<void>();
    }
    awaitable<release_report> release(lockcore::lease_claims claims, std::string trace_id) override {
        const auto released = co_await with_.locks.release(std::move(claims), std::move(trace_id));
        release_report out;
        if (released) {
            out.holds_left = released->holds_left;
            out.released = out.holds_left == 0;
        } else {
            out.released = released.error().code == lockcore::errc::lease_lost;
        }
        co_return out;
    }

  private:
    services with_;
};

/// What only a lease can do.
result<void> check_bare_token(const write_call& call) {
    http::fault_list faults;
    if (call.require_live) faults.add("/require_live", "needs a lease");
    if (call.then_release) faults.add("/then", "needs a lease");
    if (!faults.empty()) return std::move(faults).to_failure();
    return {};
}

/// What is known to be wrong before anything is asked of anybody; else ready to go.
result<write_context> prepare_write(services with, write_call call, http::request r) {
    write_context out;
    if (call.own_lease) {
        const auto allowed = http::require_scope(r.scopes, scope::leases);
        if (!allowed) return allowed.error();
    } else {
        auto claims = open_fencing(with, call.lease_id, r);
        if (!claims) return claims.error();
        if (call.lease_id.empty()) {
            const auto fits = check_bare_token(call);
            if (!fits) return fits.error();
        }
        out.brought = std::move(*claims);
    }
    if (!call.idempotency_key.empty()) {
        const std::string_view asked = call.asked ? *call.asked : r.body;
        out.key = make_idempotency(call.idempotency_key, r, asked, with.settings.writes.idempotency_ttl);
        call.asked.reset();
        out.running = with.keys.enter(r.principal, call.idempotency_key);
        if (!out.running) {
            return make_failure(errc::idempotency_in_progress,
                                "A call with this Idempotency-Key is still under way; nothing was done by this one.");
        }
    }
    out.call = std::move(call);
    out.request = std::move(r);
    out.request.body = {};
    out.request.headers = {};
    return out;
}

}  // namespace

awaitable<http::response> carry_out_write(services with, write_call call, http::request r, write_renderer render) {
    const std::string request_id = r.request_id;
    const bool own_lease = call.own_lease.has_value();
    const auto retell = std::move(call.retell);
    auto context = prepare_write(with, std::move(call), std::move(r));
    if (!context) co_return http::problem_response(context.error(), request_id);
    if (!own_lease) co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    service_ports ports(with);
    const auto done = co_await execute_write(ports, std::move(*context));
    http::response out;
    bool replayed = false;
    if (done) {
        out = render(*done);
        replayed = done->outcome.replayed;
    } else {
        failure why = done.error();
        if (retell) retell(why);
        out = http::problem_response(why, request_id);
        replayed = why.replayed;
    }
    if (replayed) out.headers.emplace_back("Idempotency-Replayed", "true");
    co_return out;
}

}  // namespace fencegate::api
