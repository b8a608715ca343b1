#include <gateway/api/writes/answer_write.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/leases/lock_failures.hpp>
#include <gateway/api/writes/fencing.hpp>
#include <gateway/api/writes/idempotency.hpp>
#include <gateway/audit/storage_watch.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/pg/database.hpp>

#include <lockcore/lock_manager.hpp>

#include <boost/asio/this_coro.hpp>

namespace fencegate::api {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

/// Connects the write service to the gateway's lock manager and database.
class service_ports final : public write_ports {
  public:
    service_ports(const gateway_services& services, std::shared_ptr<limits::caller> caller,
                  const boost::asio::ip::address& peer)
        : services_(services),
          seals_(services.locks, services.database.fences()),
          caller_(std::move(caller)),
          peer_(peer) {}

    awaitable<result<found_outcome>> find_outcome(std::string principal, idempotency_key key,
                                                  time_point until) override {
        return services_.database.writes().find_outcome(std::move(principal), std::move(key), until);
    }
    awaitable<result<pg::committed_write>> write(write_request request, time_point until) override {
        return services_.database.writes().write(std::move(request), until);
    }
    seal_ports& seals() override { return seals_; }
    awaitable<void> release_abandoned_lease(lockcore::lease_claims claims, std::string trace_id) override {
        return api::release_abandoned_lease(services_.locks, std::move(claims), std::move(trace_id));
    }
    awaitable<result<lockcore::lease>> acquire(lockcore::acquire_request request) override {
        const auto admitted = admit_acquisition(services_, caller_, peer_, request);
        if (!admitted) co_return admitted.error();
        auto granted = co_await services_.locks.acquire(std::move(request));
        if (granted) co_return std::move(*granted);
        failure why = to_failure(granted.error());
        if (why.code == errc::resource_locked) why.facts["max_wait_ms"] = services_.settings.locks.max_wait.count();
        co_return why;
    }
    awaitable<result<void>> require_live(lockcore::lease_claims claims) override {
        const auto seen = co_await services_.locks.inspect(std::move(claims));
        if (!seen) co_return to_failure(seen.error());
        co_return result<void>();
    }
    awaitable<release_report> release(lockcore::lease_claims claims, std::string trace_id) override {
        const auto released = co_await services_.locks.release(std::move(claims), std::move(trace_id));
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
    const gateway_services& services_;
    gateway_seal_ports seals_;
    std::shared_ptr<limits::caller> caller_;
    boost::asio::ip::address peer_;
};

/// Refuses the options that need a lease, for a write with a bare token.
result<void> check_bare_token(const write_call& call) {
    http::fault_list faults;
    if (call.require_live) faults.add("/require_live", "needs a lease");
    if (call.then_release) faults.add("/then", "needs a lease");
    if (!faults.empty()) return std::move(faults).to_failure();
    return {};
}

/// Checks that the caller may use every table and function that the write names.
result<void> check_exposed(const write_call& call, const http::rights& rights) {
    const auto name_of = [](const auto& given) -> const std::string& {
        if constexpr (requires { given.function; }) {
            return given.function;
        } else {
            return given.table;
        }
    };
    for (const operation& each : call.operations) {
        const auto allowed = rights.require_exposed(std::visit(name_of, each));
        if (!allowed) return allowed.error();
    }
    return {};
}

/// Checks a write before it asks the nodes or PostgreSQL anything, and returns its context.
result<write_context> prepare_write(const gateway_services& services, write_call call, http::request r) {
    write_context out;
    const auto exposed = check_exposed(call, *r.rights);
    if (!exposed) return exposed.error();
    if (call.own_lease) {
        for (const scope needed : {scope::leases, scope::writes}) {
            const auto allowed = r.rights->require(needed, call.own_lease->resources);
            if (!allowed) return allowed.error();
        }
    } else {
        auto claims = open_lease_or_token(services.locks, call.lease_id, r);
        if (!claims) return claims.error();
        if (call.lease_id.empty()) {
            const auto fits = check_bare_token(call);
            if (!fits) return fits.error();
        }
        out.caller_claims = std::move(*claims);
    }
    if (!call.idempotency_key.empty()) {
        out.key = make_idempotency_key(call.idempotency_key, r, call.fingerprint_text, call.accepted_form,
                                       services.settings.writes.idempotency_ttl);
        std::string().swap(call.fingerprint_text);
        out.running = services.keys.enter(r.principal, call.idempotency_key);
        if (!out.running) {
            return make_failure(errc::idempotency_in_progress,
                                "A call with this Idempotency-Key is still under way; nothing was done by this one.");
        }
    }
    out.call = std::move(call);
    out.request = std::move(r);
    // What is parsed is not held twice while the write waits. An assignment of {} would keep the memory.
    std::string().swap(out.request.body);
    out.request.headers = {};
    return out;
}

}  // namespace

http::awaitable_response answer_write(const gateway_services& services, write_call call, http::request r,
                                      write_renderer render) {
    const bool own_lease = call.own_lease.has_value();
    service_ports ports(services, r.caller, r.peer);
    const auto translate_failure = std::move(call.translate_failure);
    const auto storage = services.storage.check();
    if (!storage) co_return storage.error();
    auto context = prepare_write(services, std::move(call), std::move(r));
    if (!context) {
        failure error = context.error();
        if (translate_failure) translate_failure(error);
        co_return error;
    }
    if (!own_lease) co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    const auto done = co_await execute_write(ports, std::move(*context));
    if (!done) {
        failure error = done.error();
        if (translate_failure) translate_failure(error);
        co_return error;
    }
    http::response out = render(*done);
    if (done->outcome.replayed) {
        out.headers.emplace_back("Idempotency-Replayed", "true");
    } else {
        services.storage.acknowledged().add(done->outcome.write_id, std::chrono::steady_clock::now());
    }
    co_return out;
}

}  // namespace fencegate::api
