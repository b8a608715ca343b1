#include <gateway/api/writes/execute_write.hpp>

#include <gateway/runtime/random.hpp>

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

/// Adds the write_id to the failure of a write; not if its key belongs to another call, because it was not made then.
failure with_write_id(failure f, const std::string& write_id) {
    const bool own_write = f.code != errc::idempotency_in_progress && f.code != errc::idempotency_mismatch;
    if (own_write && !f.facts.contains("write_id")) f.facts["write_id"] = write_id;
    return f;
}

awaitable<result<pg::committed_write>> write_once(write_ports& ports, write_request request, pg::deadline until) {
    const std::string write_id = request.write_id;
    auto written = co_await ports.write(std::move(request), until);
    if (!written) co_return with_write_id(written.error(), write_id);
    co_return written;
}

awaitable<result<write_outcome>> await_disk(pg::committed_write written) {
    const std::string write_id = written.outcome.write_id;
    auto outcome = co_await pg::await_durable(std::move(written));
    if (!outcome) co_return with_write_id(outcome.error(), write_id);
    co_return outcome;
}

/// Returns the kept outcome of an earlier call with the same idempotency key. Empty: there is none.
awaitable<result<found_outcome>> find_kept_outcome(write_ports& ports, std::string principal,
                                                   std::optional<idempotency_key> key, pg::deadline until) {
    if (!key) co_return found_outcome{};
    co_return co_await ports.find_outcome(std::move(principal), std::move(*key), until);
}

/// Waits until a write under the caller's lease is on disk, then releases the lease if requested: if a crash loses the
/// write, the caller still has the lease. If the outcome is that of an earlier call under another lease, this lease's
/// token is sealed here.
awaitable<result<write_report>> finish_write(write_ports& ports, write_context context, pg::committed_write written,
                                             seal_decision decision) {
    auto outcome = co_await await_disk(std::move(written));
    if (!outcome) {
        if (!outcome.error().outcome_unknown) ports.abandon_seal(*context.caller_claims, decision);
        co_return outcome.error();
    }
    write_report report;
    report.outcome = std::move(*outcome);
    if (!context.call.then_release) co_return report;
    report.release = co_await ports.release(*context.caller_claims, context.request.trace_id);
    if (report.outcome.token != context.caller_claims->token) report.outcome.sealed = false;
    if (!report.outcome.sealed && report.release->released) {
        // This was the last hold, although others were left when the write began: these may have been released meanwhile
        // by calls whose seal found this hold.
        auto initiator = make_actor(*context.caller_claims, context.request);
        report.outcome.sealed = co_await ports.seal_released_token(std::move(*context.caller_claims),
                                                                   std::move(initiator), context.request.deadline);
    }
    co_return report;
}

/// Executes a write under a lease of the caller, or with a bare token.
awaitable<result<write_report>> write_under_lease(write_ports& ports, write_context context) {
    seal_decision decision;
    if (context.call.require_live) {
        auto found =
            co_await find_kept_outcome(ports, context.request.principal, context.key, context.request.deadline);
        if (!found) co_return found.error();
        if (found->value && !*found->value) co_return found->value->error();
        if (found->value) {
            pg::committed_write kept{std::move(**found->value)};
            co_return co_await finish_write(ports, std::move(context), std::move(kept), decision);
        }
        const auto live = co_await ports.require_live(*context.caller_claims);
        if (!live) co_return live.error();
    }
    if (context.call.then_release) {
        const auto prepared = co_await ports.prepare_seal(*context.caller_claims);
        if (!prepared) co_return prepared.error();
        decision = *prepared;
    }
    write_request request = make_write(context, *context.caller_claims);
    request.seal = decision.seal;
    auto written = co_await write_once(ports, std::move(request), context.request.deadline);
    if (!written) {
        if (!written.error().outcome_unknown) ports.abandon_seal(*context.caller_claims, decision);
        co_return written.error();
    }
    co_return co_await finish_write(ports, std::move(context), std::move(*written), decision);
}

awaitable<bool> cancelled() {
    co_return (co_await asio::this_coro::cancellation_state).cancelled() != asio::cancellation_type::none;
}

awaitable<result<write_report>> write_under_own_lease(write_ports& ports, write_context context) {
    auto found = co_await find_kept_outcome(ports, context.request.principal, context.key, context.request.deadline);
    if (!found) co_return found.error();
    write_report report;
    report.own_lease = true;
    if (found->value) {
        if (!*found->value) co_return found->value->error();
        report.outcome = std::move(**found->value);
        report.release.emplace().released = true;
        co_return report;
    }
    const auto allowed = ports.check_event_capacity();
    if (!allowed) co_return allowed.error();
    const failure stopped = make_failure(errc::shutting_down, "The call was cancelled; nothing was written.");
    if (co_await cancelled()) co_return stopped;

    const pg::deadline until = context.request.deadline + context.call.own_lease->wait;
    context.call.own_lease->closed =
        !context.call.own_lease->holder.owner.empty();  // no hold may join a lease that is sealed at once
    const auto granted = co_await ports.acquire(std::move(*context.call.own_lease));
    if (!granted) co_return granted.error();
    // From here on the lease has to be released, also if the caller hangs up.
    const bool caller_gone = co_await cancelled();
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    if (caller_gone) {
        co_await ports.release_abandoned_lease(granted->claims, context.request.trace_id);
        co_return stopped;
    }
    seal_decision decision;
    decision.seal = true;
    if (granted->reentrant) {
        const auto prepared = co_await ports.prepare_seal(granted->claims);
        if (!prepared) {
            co_await ports.release_abandoned_lease(granted->claims, context.request.trace_id);
            co_return prepared.error();
        }
        decision = *prepared;
    }
    write_request request = make_write(context, granted->claims);
    request.seal = decision.seal;
    auto written = co_await write_once(ports, std::move(request), until);
    // The write may still be committed, and the next holder must see it. So the lease is not released but expires.
    if (!written && written.error().outcome_unknown) co_return written.error();
    report.release = co_await ports.release(granted->claims, context.request.trace_id);
    if (!written) co_return written.error();
    auto outcome = co_await await_disk(std::move(*written));
    if (!outcome) co_return outcome.error();
    report.outcome = std::move(*outcome);
    if (!report.outcome.sealed && report.release->released) {
        auto initiator = make_actor(granted->claims, context.request);
        report.outcome.sealed = co_await ports.seal_released_token(granted->claims, std::move(initiator), until);
    }
    co_return report;
}

}  // namespace

awaitable<result<write_report>> execute_write(write_ports& ports, write_context context) {
    if (context.call.own_lease) return write_under_own_lease(ports, std::move(context));
    return write_under_lease(ports, std::move(context));
}

}  // namespace fencegate::api
