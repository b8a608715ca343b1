#include <gateway/api/leases/leases.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/leases/lease_admission.hpp>
#include <gateway/api/leases/lease_render.hpp>
#include <gateway/api/leases/lease_request.hpp>
#include <gateway/api/leases/lease_seal.hpp>
#include <gateway/api/leases/lease_streams.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/pg/database.hpp>
#include <gateway/runtime/rfc3339.hpp>

#include <lockcore/lock_manager.hpp>

#include <boost/asio/this_coro.hpp>

#include <algorithm>

namespace fencegate::api {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

http::response granted_response(const lease_services& services, lockcore::lease granted, std::string trace_id,
                                bool release_undelivered) {
    http::response out = lease_response(granted, granted.reentrant || granted.hold_count > 1 ? 200 : 201,
                                        services.settings.locks.max_hold);
    out.headers.emplace_back("Location", location_of(granted.id));
    if (granted.repeated) out.headers.emplace_back("Idempotency-Replayed", "true");
    if (!release_undelivered) return out;
    out.undo_undelivered = [&services, claims = std::move(granted.claims), trace_id = std::move(trace_id)] {
        return release_abandoned_lease(services.locks, claims, trace_id);
    };
    return out;
}

/// Raises the fence to the token of a grant, which takes part of its validity (docs/protocol.md R6).
awaitable<result<void>> raise_fence(pg::database& database, const lockcore::lease& granted, actor initiator,
                                    pg::deadline until) {
    auto raised = co_await database.raise_fences(granted.claims.resources, granted.claims.token, std::move(initiator),
                                                 "fence_on_grant", until);
    if (!raised) {
        failure why = raised.error();
        // Another transaction has the fence locked; write_conflict would say that the request is in conflict.
        if (why.code == errc::write_conflict) why.code = errc::storage_unavailable;
        co_return why;
    }
    if (lockcore::boot_clock::now() < granted.valid_until) co_return result<void>{};
    co_return make_failure(errc::storage_unavailable, "Raising the fence took longer than the lease's validity.");
}

/// The part of a request that is kept while it waits for its lease, which may be long.
struct pending_acquire {
    std::string trace_id, principal;
    bool fence_on_grant = false, kept = false, has_idempotency_key = false;
    std::chrono::milliseconds max_hold{};
    http::rights::time_point rights_until;  ///< A kept lease ends then.
    /// The resources whose holder a refusal may show: those for which the caller has the scope `history`.
    std::vector<lockcore::resource_name> show_holder_of;
    pg::deadline until;
    limits::held_leases::acquisition acquisition;  ///< Until the acquisition has ended.
    std::shared_ptr<void> stream = {};             ///< The places of a kept lease.
};

/// Returns whether to release a grant that its caller did not receive. A stream has a hold of its own. Otherwise a
/// caller with an idempotency key may repeat the call to get this lease.
bool must_release_undelivered(const pending_acquire& pending) {
    return pending.kept || !pending.has_idempotency_key;
}

http::awaitable_response answer_grant(const lease_services& services, pending_acquire pending,
                                      lockcore::lease granted) {
    if (pending.fence_on_grant) {
        actor initiator;
        initiator.principal = pending.principal;
        initiator.owner = granted.claims.holder.owner;
        initiator.trace_id = pending.trace_id;
        const auto fenced = co_await raise_fence(services.database, granted, std::move(initiator), pending.until);
        if (!fenced) {
            if (must_release_undelivered(pending))
                co_await release_abandoned_lease(services.locks, granted.claims, pending.trace_id);
            co_return fenced.error();
        }
    }
    if (pending.kept) {
        using std::chrono::milliseconds;
        const auto rights_left =
            std::chrono::floor<milliseconds>(pending.rights_until - http::rights::time_point::clock::now());
        const auto max_hold = std::clamp(rights_left, milliseconds{1}, pending.max_hold);
        co_return kept_response(services.locks, std::move(granted), max_hold, std::move(pending.trace_id),
                                std::move(pending.stream));
    }
    co_return granted_response(services, std::move(granted), std::move(pending.trace_id),
                               must_release_undelivered(pending));
}

/// Answers that the resource is locked, with the maximum wait_ms of one call and, if allowed, the holder.
http::awaitable_response answer_locked(const lease_services& services, pending_acquire pending, failure locked) {
    locked.facts["max_wait_ms"] = services.settings.locks.max_wait.count();
    for (auto& resource : pending.show_holder_of) {
        const auto seen = co_await services.locks.find_lease(std::move(resource));
        if (!seen || !*seen) continue;
        const std::string& owner = (*seen)->claims.holder.owner;
        if (owner.empty()) {
            locked.facts["owner"] = nullptr;
        } else {
            locked.facts["owner"] = owner;
        }
        locked.facts["principal"] = (*seen)->claims.holder.principal;
        locked.facts["fencing_token"] = lockcore::value_of((*seen)->claims.token);
        break;
    }
    co_return locked;
}

http::awaitable_response answer_outcome(const lease_services& services, pending_acquire pending,
                                        lockcore::result<lockcore::lease> granted) {
    if (!granted) {
        failure refused = to_failure(granted.error());
        if (refused.code == errc::resource_locked)
            co_return co_await answer_locked(services, std::move(pending), std::move(refused));
        co_return refused;
    }
    const bool caller_gone =
        (co_await asio::this_coro::cancellation_state).cancelled() != asio::cancellation_type::none;
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    if (caller_gone) {
        if (must_release_undelivered(pending))
            co_await release_abandoned_lease(services.locks, granted->claims, pending.trace_id);
        const auto cancelled =
            make_failure(errc::shutting_down,
                         must_release_undelivered(pending)
                             ? "The call was cancelled; the lease was released."
                             : "The call was cancelled; repeat it with the same Idempotency-Key to get the lease.");
        co_return cancelled;
    }
    co_return co_await answer_grant(services, std::move(pending), std::move(*granted));
}

/// Waits for a grant and answers. Many calls may wait here for long, so this coroutine keeps as little as possible.
http::awaitable_response wait_for_grant(const lease_services& services, pending_acquire pending,
                                        awaitable<lockcore::result<lockcore::lease>> acquiring) {
    // A grant has to be either answered or released, so a cancellation must not throw in between.
    co_await asio::this_coro::throw_if_cancelled(false);
    auto outcome = co_await std::move(acquiring);
    pending.acquisition = limits::held_leases::acquisition();
    co_return co_await answer_outcome(services, std::move(pending), std::move(outcome));
}

using boost::asio::awaitable;

/// Maximum number of resources whose waiting callers the list counts.
constexpr std::size_t waiting_resources_max = 1'000;

/// How long the answer that there is no lease waits for the history.
constexpr std::chrono::seconds last_end_timeout{1};

actor make_operator(const http::request& r) {
    actor initiator;
    initiator.principal = r.principal;
    initiator.trace_id = r.trace_id;
    return initiator;
}

/// Says that nobody holds a lease on the resource, and how the latest one ended if the history shows that among the
/// resource's newest events: a revocation that is repeated has succeeded, a lease that expired is not sealed.
awaitable<failure> make_no_lease_failure(const lease_services& services, std::string principal, std::string resource,
                                         std::chrono::steady_clock::time_point deadline) {
    failure none = make_failure(errc::not_found, "Nobody holds a lease on this resource.");
    history_query query;
    query.resource = std::move(resource);
    const auto until = std::min(deadline, std::chrono::steady_clock::now() + last_end_timeout);
    const auto page =
        co_await services.database.read_history(std::move(principal), read_cost::cheap, std::move(query), until);
    if (!page) co_return none;
    for (const history_item& item : page->items) {
        if (item.event == "lease_granted") break;
        const std::string_view end = item.event == "lease_revoked"    ? "was revoked"
                                     : item.event == "lease_released" ? "was released"
                                     : item.event == "lease_expired"  ? "expired"
                                                                      : "";
        if (end.empty() || !item.fencing_token) continue;
        none.detail.back() = ';';
        none.detail += " the latest one, with token " + std::to_string(*item.fencing_token) + ", " + std::string(end) +
                       " at " + runtime::to_rfc3339(item.at) + '.';
        break;
    }
    co_return none;
}

}  // namespace

// Not a coroutine, so that its local variables are freed before the wait begins.
http::awaitable_response acquire_lease(const lease_services& services, http::request r) {
    auto wanted = parse_lease_request(r, services.settings.locks);
    if (!wanted) return http::as_awaitable(wanted.error());
    const auto allowed = r.rights->require(scope::leases, wanted->acquire.resources);
    if (!allowed) return http::as_awaitable(allowed.error());
    auto acquisition = admit_acquisition(services, r.caller, r.peer, wanted->acquire);
    if (!acquisition) return http::as_awaitable(acquisition.error());
    pending_acquire pending;
    pending.acquisition = std::move(*acquisition);
    if (wanted->acquire.kept) {
        auto places = admit_stream(services.limiter, r, {limits::use::streams});
        if (!places) return http::as_awaitable(places.error());
        pending.stream = std::move(*places);
    }
    pending.trace_id = std::move(r.trace_id);
    pending.principal = std::move(r.principal);
    pending.fence_on_grant = wanted->fence_on_grant;
    pending.kept = wanted->acquire.kept;
    pending.max_hold = wanted->max_hold;
    pending.rights_until = r.rights_until;
    for (const auto& resource : wanted->acquire.resources) {
        if (r.rights->require(scope::history, resource.str())) pending.show_holder_of.push_back(resource);
    }
    pending.has_idempotency_key = !wanted->acquire.idempotency_key.empty();
    pending.until = r.deadline + wanted->acquire.wait;
    auto acquiring = services.locks.acquire(std::move(wanted->acquire));
    return wait_for_grant(services, std::move(pending), std::move(acquiring));
}

http::awaitable_response cancel_acquisition(const lease_services& services, http::request r) {
    auto wanted = parse_cancellation(r, services.settings.locks);
    if (!wanted) co_return wanted.error();
    const auto allowed = r.rights->require(scope::leases, wanted->resources);
    if (!allowed) co_return allowed.error();
    const auto cancelled = co_await services.locks.cancel(std::move(*wanted));
    if (!cancelled) co_return to_failure(cancelled.error());
    http::response out;
    out.status = 204;
    co_return out;
}

http::awaitable_response renew_lease(const lease_services& services, http::request r) {
    const auto ttl = parse_renewal(r, services.settings.locks);
    if (!ttl) co_return ttl.error();
    auto claims = open_lease(services.locks, r.path_parameters.at(0), scope::leases, r);
    if (!claims) co_return claims.error();
    const auto renewed = co_await services.locks.renew(std::move(*claims), *ttl, r.trace_id);
    if (!renewed) co_return to_failure(renewed.error());
    co_return lease_response(*renewed, 200, services.settings.locks.max_hold);
}

http::awaitable_response show_lease(const lease_services& services, http::request r) {
    auto claims = open_lease(services.locks, r.path_parameters.at(0), scope::leases, r);
    if (!claims) co_return claims.error();
    constexpr std::size_t event_stream = 1;  // among the media types of the route
    if (r.media_type == event_stream) co_return co_await watch_lease(services, std::move(*claims), std::move(r));
    const auto seen = co_await services.locks.inspect(std::move(*claims));
    if (!seen) co_return to_failure(seen.error());
    // The answer is sent even if the validity is over, because another call may renew the lease meanwhile.
    http::response out = http::json_response({});
    http::expiring_text& body = out.expiring_body.emplace();
    body.valid_until = lockcore::validity_time::max();  // never expires; the times are computed when it is sent
    body.render = [lease = *seen](std::chrono::milliseconds, std::chrono::milliseconds served) {
        using std::chrono::milliseconds;
        const auto left = std::chrono::floor<milliseconds>(lease.valid_until - lockcore::boot_clock::now());
        return render_lease(lease, {std::max(left, milliseconds{0}), served});
    };
    co_return out;
}

http::awaitable_response release_lease(const lease_services& services, http::request r) {
    http::fault_list faults;
    const http::query_reader query(r.query, {"seal"}, faults);
    const bool seal = query.boolean("seal").value_or(false);
    if (!r.body.empty()) {  // one that asks for a seal must not be ignored
        const auto body = http::parse_object_body(r);
        if (!body) co_return body.error();
        http::object_reader(*body, "", faults).refuse_unknown({});
    }
    if (!faults.empty()) co_return std::move(faults).to_failure();
    const auto claims = open_lease(services.locks, r.path_parameters.at(0), scope::leases, r);
    if (!claims) co_return claims.error();

    gateway_seal_ports ports(services.locks, services.database);
    lease_seal token_seal(ports, *claims, make_actor(*claims, r));
    if (seal) {
        const auto prepared = co_await token_seal.prepare(claims->may_be_shared);
        if (!prepared) co_return prepared.error();
        const auto sealed = co_await token_seal.seal(r.deadline);
        if (!sealed) co_return sealed.error();
    }
    const auto released = co_await services.locks.release(*claims, r.trace_id);
    if (!released) co_return to_failure(released.error());
    bool unsealed = seal && !token_seal.precedes_release();
    if (unsealed && released->holds_left == 0) {
        // The hold is gone also where this fails, so the call has succeeded.
        const bool sealed = co_await token_seal.seal_released(r.deadline);
        unsealed = !sealed;
    }
    if (released->holds_left > 0 || unsealed) {
        co_return http::json_response(
            render_remaining_holds(*claims, r.path_parameters.at(0), released->holds_left, unsealed));
    }
    http::response out;
    out.status = 204;
    co_return out;
}

http::awaitable_response list_leases(const lease_services& services, http::request r) {
    const lockcore::cell_id cell = services.settings.locks.cell;
    auto wanted = parse_lease_listing(r.query, cell);
    if (!wanted) co_return wanted.error();
    wanted->until = r.deadline;
    wanted->principal = r.principal;
    std::string prefix = wanted->prefix;
    const auto allowed = r.rights->require_for_prefix(scope::history, prefix);
    if (!allowed) co_return allowed.error();
    auto page = co_await services.locks.list_leases(std::move(*wanted));
    if (!page) co_return to_failure(page.error());
    if (!page->next.empty()) page->next = make_listing_cursor(page->next, cell);
    const auto waiting = co_await services.locks.list_waiters(std::move(prefix), waiting_resources_max);
    co_return http::json_response(render_live_leases(*page, waiting, services.settings.locks.nodes.size()));
}

http::awaitable_response revoke_lease(const lease_services& services, http::request r) {
    const auto order = parse_operator_order(r, operator_request::revoke_lease);
    if (!order) co_return order.error();

    const auto seen = co_await services.locks.find_lease(order->resource);
    if (!seen) co_return to_failure(seen.error());
    if (!*seen) {
        const failure none = co_await make_no_lease_failure(services, r.principal, order->resource.str(), r.deadline);
        co_return none;
    }
    const lockcore::live_lease& lease = **seen;
    // The revocation ends the lease for all its resources.
    const auto allowed = r.rights->require(scope::operate, lease.claims.resources);
    if (!allowed) co_return allowed.error();
    const std::uint64_t token = lockcore::value_of(lease.claims.token);
    if (order->token && *order->token != token) {
        failure mismatch = make_failure(errc::expectation_failed,
                                        "The lease has another token than expected_token; it was not revoked.");
        mismatch.facts["fencing_token"] = token;
        co_return mismatch;
    }
    const auto sealed =
        co_await services.database.raise_fences(lease.claims.resources, lockcore::fencing_token{token + 1},
                                                make_operator(r), "revoked: " + order->reason, r.deadline);
    if (!sealed) co_return sealed.error();
    lockcore::lock_manager::revocation revocation_details;
    revocation_details.actor.principal = r.principal;
    revocation_details.reason = order->reason;
    revocation_details.trace_id = r.trace_id;
    const auto ended = co_await services.locks.revoke(lease.claims, std::move(revocation_details));
    // A lease that ended meanwhile is sealed too, so the call succeeded.
    if (!ended && ended.error().code != lockcore::errc::lease_lost) co_return to_failure(ended.error());
    http::response out;
    out.status = 204;
    co_return out;
}

http::awaitable_response repair_fence(const lease_services& services, http::request r) {
    const auto order = parse_operator_order(r, operator_request::repair_fence);
    if (!order) co_return order.error();

    const auto repaired = co_await services.database.repair_fence(
        order->resource, lockcore::fencing_token{*order->token}, make_operator(r), order->reason, r.deadline);
    if (!repaired) co_return repaired.error();
    std::string text;
    http::object_writer(text)
        .text("resource", repaired->resource)
        .number("last_fencing_token", repaired->last_fencing_token)
        .end();
    co_return http::json_response(std::move(text));
}

}  // namespace fencegate::api
