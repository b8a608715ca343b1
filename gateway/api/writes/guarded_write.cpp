#include <gateway/api/writes/guarded_write.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/routes.hpp>
#include <gateway/api/writes/idempotency.hpp>
#include <gateway/audit/storage_watch.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/pg/database.hpp>
#include <gateway/runtime/random.hpp>

#include <lockcore/lock_manager.hpp>

#include <boost/asio/this_coro.hpp>

#include <utility>

namespace fencegate::api {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

write_request make_write(write_context& context, const lockcore::lease_claims& claims) {
    write_request out;
    out.write_id = runtime::uuid_v7();
    out.initiator = make_actor(claims, context.request);
    out.resources = claims.resources;
    out.token = claims.token;
    out.operations = std::move(context.call.operations);
    out.return_rows = context.call.return_rows;
    out.select = std::move(context.call.select);
    out.format = context.call.format;
    out.bare_token = context.caller_claims && context.call.lease_id.empty();
    out.key = context.key;
    out.identity = context.request.rights->database();
    return out;
}

/// Returns the failure of a write with its write_id; without it if the key belongs to another call, because then the
/// write was not made.
failure add_write_id(failure f, const std::string& write_id) {
    const bool was_made = f.code != errc::idempotency_in_progress && f.code != errc::idempotency_mismatch;
    if (was_made && !f.facts.contains("write_id")) f.facts["write_id"] = write_id;
    return f;
}

awaitable<bool> cancelled() {
    co_return (co_await asio::this_coro::cancellation_state).cancelled() != asio::cancellation_type::none;
}

/// The lease under which a write is executed, or the token of another issuer.
struct lease_of_write {
    lockcore::lease_claims claims;
    pg::deadline until;
    bool own = false;                   ///< Acquired for this write alone.
    bool release_after_write = false;   ///< Its token is sealed with the write then.
    bool may_have_other_holds = false;  ///< Of a re-entrant lease.
};

awaitable<result<lease_of_write>> acquire_own_lease(write_ports& ports, write_context& context) {
    const failure stopped = make_failure(errc::shutting_down, "The call was cancelled; nothing was written.");
    if (co_await cancelled()) co_return stopped;
    lockcore::acquire_request wanted = std::move(*context.call.own_lease);
    wanted.closed = !wanted.holder.owner.empty();  // no hold may join a lease that is sealed at once
    const pg::deadline until = context.request.deadline + wanted.wait;
    const auto granted = co_await ports.acquire(std::move(wanted));
    if (!granted) co_return granted.error();
    // From here on the lease has to be released, also if the caller hangs up.
    const bool caller_gone = co_await cancelled();
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    if (caller_gone) {
        co_await ports.release(granted->claims, context.request.trace_id);
        co_return stopped;
    }
    lease_of_write out{.claims = granted->claims, .until = until};
    out.own = true;
    out.release_after_write = true;
    out.may_have_other_holds = granted->reentrant;
    co_return out;
}

lease_of_write lease_of_caller(const write_context& context) {
    const lockcore::lease_claims& claims = *context.caller_claims;
    lease_of_write out{.claims = claims, .until = context.request.deadline};
    out.release_after_write = context.call.then_release;
    out.may_have_other_holds = claims.may_be_shared;
    return out;
}

/// Writes under the lease, and seals its token with the write if the lease is to be released. A lease of the write's
/// own is released as soon as others can see the write; one of the caller is opened again if the write fails.
///
/// Out: once the write is on disk: the outcome, and the release of an own lease.
awaitable<result<write_report>> write_under_lease(write_ports& ports, write_context& context,
                                                  const lease_of_write& lease) {
    write_request request = make_write(context, lease.claims);
    const std::string write_id = request.write_id;
    std::optional<lease_seal> seal;
    if (lease.release_after_write) {
        auto prepared = co_await lease_seal::prepare(ports.seals(), lease.claims, lease.may_have_other_holds);
        if (!prepared && lease.own) co_await ports.release(lease.claims, context.request.trace_id);
        if (!prepared) co_return prepared.error();
        seal.emplace(std::move(*prepared));
        request.seal = seal->is_last_hold();
    }
    auto written = co_await ports.write(std::move(request), lease.until);
    write_report report;
    report.own_lease = lease.own;
    // Where the write may still be committed, the next holder must see it: the lease is not released, it expires.
    const bool unknown = !written && written.error().outcome_unknown;
    if (lease.own && !unknown) report.release = co_await ports.release(lease.claims, context.request.trace_id);
    std::optional<failure> failed;
    if (!written) {
        failed = written.error();
    } else if (written->durability) {
        failed = co_await written->durability->wait();
    }
    if (failed) {
        if (seal && !lease.own) seal->abandon(*failed);
        co_return add_write_id(*failed, write_id);
    }
    report.outcome = std::move(written->outcome);
    co_return report;
}

/// Connects the write service to the gateway's lock manager and database.
class service_ports final : public write_ports {
  public:
    service_ports(const write_services& services, std::shared_ptr<limits::caller> caller,
                  const boost::asio::ip::address& peer)
        : services_(services), seals_(services.locks, services.database), caller_(std::move(caller)), peer_(peer) {}

    awaitable<result<std::optional<write_outcome>>> find_outcome(std::string principal, idempotency_key key,
                                                                 time_point until) override {
        return services_.database.writes().find_outcome(std::move(principal), std::move(key), until);
    }
    awaitable<result<pg::committed_write>> write(write_request request, time_point until) override {
        return services_.database.writes().write(std::move(request), until);
    }
    seal_ports& seals() override { return seals_; }
    awaitable<result<lockcore::lease>> acquire(lockcore::acquire_request request) override {
        const auto admitted = admit_acquisition(services_.leases, caller_, peer_, request);
        if (!admitted) co_return admitted.error();
        auto granted = co_await services_.locks.acquire(std::move(request));
        if (granted) co_return std::move(*granted);
        failure why = to_failure(granted.error());
        if (why.code == errc::resource_locked) why.facts["max_wait_ms"] = services_.settings.protocol.max_wait.count();
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
            out.released = released.error().code == lockcore::errc::lease_lost;  // a majority has it no more
        }
        co_return out;
    }

  private:
    const write_services& services_;
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
result<write_context> prepare_write(const write_services& services, write_call call, http::request r) {
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
    // What is parsed is not in memory twice while the write waits. An assignment of {} would keep the memory.
    std::string().swap(out.request.body);
    out.request.headers = {};
    return out;
}

}  // namespace

awaitable<result<write_report>> execute_write(write_ports& ports, write_context context) {
    const bool own_lease = context.call.own_lease.has_value();
    std::optional<write_outcome> earlier;
    if (context.key && (own_lease || context.call.require_live)) {  // before it asks the nodes
        auto found = co_await ports.find_outcome(context.request.principal, *context.key, context.request.deadline);
        if (!found) co_return found.error();
        earlier = std::move(*found);
    }
    lease_of_write lease;
    if (own_lease) {
        if (earlier) {
            write_report report{.outcome = std::move(*earlier), .own_lease = true};
            report.release.emplace().released = true;
            co_return report;
        }
        auto acquired = co_await acquire_own_lease(ports, context);
        if (!acquired) co_return acquired.error();
        lease = std::move(*acquired);
    } else {
        lease = lease_of_caller(context);
        if (context.call.require_live && !earlier) {
            const auto live = co_await ports.require_live(lease.claims);
            if (!live) co_return live.error();
        }
    }
    write_report report;
    if (earlier) {
        report.outcome = std::move(*earlier);
    } else {
        auto written = co_await write_under_lease(ports, context, lease);
        if (!written) co_return written.error();
        report = std::move(*written);
    }
    if (lease.release_after_write && !lease.own) {
        // Only now, so that the caller still has the lease if a crash loses the write.
        report.release = co_await ports.release(lease.claims, context.request.trace_id);
        // The outcome may be that of an earlier call under another lease.
        if (report.outcome.token != lease.claims.token) report.outcome.sealed = false;
    }
    if (report.release && report.release->released && !report.outcome.sealed) {
        actor initiator = make_actor(lease.claims, context.request);
        report.outcome.sealed =
            co_await seal_after_release(ports.seals(), lease.claims, std::move(initiator), lease.until);
    }
    co_return report;
}

awaitable<result<write_report>> run_write(const write_services& services, write_call call, http::request r) {
    service_ports ports(services, r.caller, r.peer);
    const auto storage = services.storage.check();
    if (!storage) co_return storage.error();
    auto context = prepare_write(services, std::move(call), std::move(r));
    if (!context) co_return context.error();
    // Only the wait for a lease of its own can be cancelled.
    if (!context->call.own_lease) co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    auto done = co_await execute_write(ports, std::move(*context));
    if (done && !done->outcome.replayed)
        services.storage.acknowledged().add(done->outcome.write_id, std::chrono::steady_clock::now());
    co_return done;
}

void add_replayed_header(http::response& answer, const write_report& done) {
    if (done.outcome.replayed) answer.headers.emplace_back("Idempotency-Replayed", "true");
}

http::awaitable_response apply_write(const write_services& services, http::request r) {
    auto call = parse_write_body(r, services.settings.protocol);
    if (!call) co_return call.error();
    const auto done = co_await run_write(services, std::move(*call), std::move(r));
    if (!done) co_return done.error();
    http::response answer = http::json_response(render_write(*done));
    add_replayed_header(answer, *done);
    co_return answer;
}

}  // namespace fencegate::api
