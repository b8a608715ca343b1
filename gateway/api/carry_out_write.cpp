#include <gateway/api/carry_out_write.hpp>

#include <gateway/api/fencing.hpp>
#include <gateway/api/idempotency.hpp>
#include <gateway/api/lease_access.hpp>
#include <gateway/api/lock_failures.hpp>
#include <gateway/http/auth.hpp>
#include <gateway/http/fields.hpp>
#include <gateway/http/problem.hpp>
#include <gateway/pg/pool.hpp>
#include <gateway/runtime/random.hpp>

#include <lockcore/lock_manager.hpp>

#include <boost/asio/this_coro.hpp>

namespace fencegate::api {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

/// A call on its way, without what only its parsing needed: it may wait for long.
struct course {
    write_call call;
    http::request by;                               ///< Without body and headers.
    std::optional<lockcore::lease_claims> brought;  ///< Of the caller's lease or bare token; none for an own lease.
    std::optional<idempotency> under;
    std::shared_ptr<void> running;  ///< Of running_keys.
};

write_request make_write(course& c, const lockcore::lease_claims& claims) {
    write_request out;
    out.write_id = runtime::uuid_v7();
    out.by = acting(claims, c.by);
    out.resources = claims.resources;
    out.token = claims.token;
    out.operations = std::move(c.call.operations);
    out.return_rows = c.call.return_rows;
    out.select = std::move(c.call.select);
    out.bare_token = c.brought && c.call.lease_id.empty();
    out.repeatable = c.under;
    return out;
}

/// A failure of a write that PostgreSQL has seen.
failure named(failure f, const std::string& write_id) {
    const bool seen = f.code != errc::idempotency_in_progress && f.code != errc::idempotency_mismatch;
    if (seen && !f.facts.contains("write_id")) f.facts["write_id"] = write_id;
    return f;
}

awaitable<result<pg::visible_write>> write(services with, write_request request, pg::deadline until) {
    const std::string write_id = request.write_id;
    auto seen = co_await with.database.write(std::move(request), until);
    if (!seen) co_return named(seen.error(), write_id);
    co_return seen;
}

awaitable<result<write_outcome>> on_disk(pg::visible_write seen) {
    const std::string write_id = seen.outcome.write_id;
    auto outcome = co_await pg::when_on_disk(std::move(seen));
    if (!outcome) co_return named(outcome.error(), write_id);
    co_return outcome;
}

awaitable<release_report> let_go(services with, lockcore::lease_claims claims, std::string trace_id) {
    const auto released = co_await with.locks.release(std::move(claims), std::move(trace_id));
    release_report out;
    if (released) {
        out.holds_left = released->holds_left;
        out.released = out.holds_left == 0;
    } else {
        out.released = released.error().code == lockcore::errc::lease_lost;
    }
    co_return out;
}

/// Seals behind the release where the last hold went with it, although others were left when the write began: they may
/// have been given back meanwhile with a seal that found this one.
awaitable<bool> seal_after_release(services with, lockcore::lease_claims claims, actor by, pg::deadline until) {
    const auto sealed = co_await seal_token(with, std::move(claims), std::move(by), until);
    co_return sealed.has_value();
}

/// What is kept already, before anything else is done. Empty: nothing.
awaitable<result<found_outcome>> look_up(services with, std::string principal, std::optional<idempotency> under,
                                         pg::deadline until) {
    if (!under) co_return found_outcome{};
    co_return co_await with.database.find_outcome(std::move(principal), std::move(*under), until);
}

/// Behind a write under a lease that the caller brought, and keeps where the write is lost in a crash after all. An
/// outcome that was kept may be of another lease: what it sealed is not this one's token.
awaitable<result<write_report>> conclude(services with, course c, pg::visible_write seen, seal_decision decision) {
    auto outcome = co_await on_disk(std::move(seen));
    if (!outcome) {
        if (!outcome.error().outcome_unknown) abandon_seal(with, *c.brought, decision);
        co_return outcome.error();
    }
    write_report report;
    report.outcome = std::move(*outcome);
    if (!c.call.then_release) co_return report;
    report.release = co_await let_go(with, *c.brought, c.by.trace_id);
    if (report.outcome.token != c.brought->token) report.outcome.sealed = false;
    if (!report.outcome.sealed && report.release->released) {
        actor by = acting(*c.brought, c.by);
        report.outcome.sealed = co_await seal_after_release(with, std::move(*c.brought), std::move(by), c.by.deadline);
    }
    co_return report;
}

/// Under a lease that the caller brought, or a bare token.
awaitable<result<write_report>> under_lease(services with, course c) {
    seal_decision decision;
    if (c.call.require_live) {
        auto found = co_await look_up(with, c.by.principal, c.under, c.by.deadline);
        if (!found) co_return found.error();
        if (found->value && !*found->value) co_return found->value->error();
        if (found->value) {
            pg::visible_write kept{std::move(**found->value), nullptr};
            co_return co_await conclude(with, std::move(c), std::move(kept), decision);
        }
        const auto seen = co_await with.locks.inspect(*c.brought);
        if (!seen) co_return to_failure(seen.error());
    }
    if (c.call.then_release) {
        const auto prepared = co_await prepare_seal(with, *c.brought);
        if (!prepared) co_return prepared.error();
        decision = *prepared;
    }
    write_request request = make_write(c, *c.brought);
    request.seal = decision.seal;
    auto seen = co_await write(with, std::move(request), c.by.deadline);
    if (!seen) {
        if (!seen.error().outcome_unknown) abandon_seal(with, *c.brought, decision);
        co_return seen.error();
    }
    co_return co_await conclude(with, std::move(c), std::move(*seen), decision);
}

awaitable<bool> cancelled() {
    co_return (co_await asio::this_coro::cancellation_state).cancelled() != asio::cancellation_type::none;
}

awaitable<result<write_report>> under_own_lease(services with, course c) {
    auto found = co_await look_up(with, c.by.principal, c.under, c.by.deadline);
    if (!found) co_return found.error();
    write_report report;
    report.own_lease = true;
    if (found->value) {
        if (!*found->value) co_return found->value->error();
        report.outcome = std::move(**found->value);
        report.release.emplace().released = true;
        co_return report;
    }
    const auto room = check_room_for_leases(with);
    if (!room) co_return room.error();
    const failure stopped = make_failure(errc::shutting_down, "The call was cancelled; nothing was done.");
    if (co_await cancelled()) co_return stopped;

    const pg::deadline until = c.by.deadline + c.call.own_lease->wait;
    c.call.own_lease->closed = !c.call.own_lease->by.owner.empty();  // nobody enters what is sealed in a moment
    const auto granted = co_await with.locks.acquire(std::move(*c.call.own_lease));
    if (!granted) co_return to_failure(granted.error());
    // From here on the lease has to be let go, whoever hangs up.
    const bool caller_gone = co_await cancelled();
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    if (caller_gone) {
        co_await give_back(with, granted->claims, c.by.trace_id);
        co_return stopped;
    }
    seal_decision decision;
    decision.seal = true;
    if (granted->entered) {
        const auto prepared = co_await prepare_seal(with, granted->claims);
        if (!prepared) {
            co_await give_back(with, granted->claims, c.by.trace_id);
            co_return prepared.error();
        }
        decision = *prepared;
    }
    write_request request = make_write(c, granted->claims);
    request.seal = decision.seal;
    auto seen = co_await write(with, std::move(request), until);
    // It may still land, and what comes next on the resource must find it: that waits for the end of the lease.
    if (!seen && seen.error().outcome_unknown) co_return seen.error();
    report.release = co_await let_go(with, granted->claims, c.by.trace_id);
    if (!seen) co_return seen.error();
    auto outcome = co_await on_disk(std::move(*seen));
    if (!outcome) co_return outcome.error();
    report.outcome = std::move(*outcome);
    if (!report.outcome.sealed && report.release->released) {
        actor by = acting(granted->claims, c.by);
        report.outcome.sealed = co_await seal_after_release(with, granted->claims, std::move(by), until);
    }
    co_return report;
}

/// What only a lease can do.
result<void> check_bare_token(const write_call& call) {
    http::fault_list faults;
    if (call.require_live) faults.add("/require_live", "needs a lease");
    if (call.then_release) faults.add("/then", "needs a lease");
    if (!faults.empty()) return std::move(faults).to_failure();
    return {};
}

/// What is known to be wrong before anything is asked of anybody; else ready to go.
result<course> set_out(services with, write_call call, http::request r) {
    course out;
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
        out.under = make_idempotency(call.idempotency_key, r, asked, with.settings.writes.idempotency_ttl);
        call.asked.reset();
        out.running = with.keys.enter(r.principal, call.idempotency_key);
        if (!out.running) {
            return make_failure(errc::idempotency_in_progress,
                                "A call with this Idempotency-Key is still under way; nothing was done by this one.");
        }
    }
    out.call = std::move(call);
    out.by = std::move(r);
    out.by.body = {};
    out.by.headers = {};
    return out;
}

}  // namespace

awaitable<http::response> carry_out_write(services with, write_call call, http::request r, write_renderer render) {
    const std::string request_id = r.request_id;
    const bool own_lease = call.own_lease.has_value();
    const auto retell = std::move(call.retell);
    auto c = set_out(with, std::move(call), std::move(r));
    if (!c) co_return http::problem_response(c.error(), request_id);
    if (!own_lease) co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    auto way = own_lease ? under_own_lease(with, std::move(*c)) : under_lease(with, std::move(*c));
    const auto done = co_await std::move(way);
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
