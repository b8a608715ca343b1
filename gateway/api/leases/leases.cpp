#include <gateway/api/routes.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/leases/lease_lifecycle.hpp>
#include <gateway/api/leases/lease_request.hpp>
#include <gateway/api/leases/lease_responses.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/pg/database.hpp>

#include <lockcore/lock_manager.hpp>

#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <iterator>

namespace fencegate::api {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

/// The index of text/event-stream among the media types of GET /v1/leases/{lease_id} (routes.cpp).
constexpr std::size_t event_stream = 1;

/// Returns the answer to a grant: 201 with a new lease, 200 with a further hold of one.
///
/// In: `release_undelivered`: release the lease if its caller does not receive the answer.
http::response granted_response(const lease_services& services, lockcore::lease granted, std::string origin,
                                bool release_undelivered) {
    const bool is_new = !granted.reentrant && granted.hold_count == 1;
    http::response out = lease_response(granted, is_new ? 201 : 200, services.settings.protocol.max_hold);
    out.headers.emplace_back("Location", location_of(granted.id));
    if (granted.repeated) out.headers.emplace_back("Idempotency-Replayed", "true");
    if (!release_undelivered) return out;
    out.undo_undelivered = [&services, claims = std::move(granted.claims), origin = std::move(origin)] {
        return release_abandoned_lease(services.locks, claims, origin);
    };
    return out;
}

/// Raises the fence to the token of a grant (`fence_on_grant`). The time that this takes is lost to the caller: it is
/// part of the lease's validity (docs/protocol.md R6).
///
/// Errors: those of pg::database::raise_fences, but storage_unavailable in place of write_conflict; storage_unavailable
///         also if the validity is over by then.
awaitable<result<void>> raise_fence(pg::database& database, const lockcore::lease& granted, actor initiator,
                                    pg::deadline until) {
    fences_to_raise fences{
        .resources = granted.claims.resources, .shared = granted.claims.shared, .token = granted.claims.token};
    auto raised = co_await database.raise_fences(std::move(fences), std::move(initiator), "fence_on_grant", until);
    if (!raised) {
        failure why = raised.error();
        // The request is not at fault: another transaction has locked the row of the fence.
        if (why.code == errc::write_conflict) why.code = errc::storage_unavailable;
        co_return why;
    }
    if (lockcore::boot_clock::now() < granted.valid_until) co_return result<void>{};
    co_return make_failure(errc::storage_unavailable, "Raising the fence took longer than the lease's validity.");
}

/// What remains of a request while it waits for its lease.
struct pending_acquire {
    std::string origin, principal;
    bool fence_on_grant = false;
    bool is_kept_lease = false;  ///< The gateway renews it; the answer is a stream.
    bool has_idempotency_key = false;
    std::chrono::milliseconds max_hold{};      ///< Of a kept lease.
    http::rights::time_point rights_until;     ///< When the credential ends, and a kept lease with it.
    std::shared_ptr<void> stream_places = {};  ///< Those of a kept lease among the limits of its principal.
    /// The resources whose holder a refusal may show: those for which the caller has the scope `history`.
    std::vector<lockcore::resource_name> show_holder_of, show_exclusive_holder_of;
    pg::deadline fence_deadline;                   ///< For raising the fence.
    limits::held_leases::acquisition acquisition;  ///< Counts the lease of its principal until it is granted.
};

/// Returns whether to release a grant that its caller did not receive. A caller with an idempotency key may repeat the
/// call to get this lease; but to a kept lease each call adds a hold of its own.
bool must_release_undelivered(const pending_acquire& pending) {
    return pending.is_kept_lease || !pending.has_idempotency_key;
}

/// Raises the fence if the caller wanted that, and answers with the lease.
http::awaitable_response answer_grant(const lease_services& services, pending_acquire pending,
                                      lockcore::lease granted) {
    if (pending.fence_on_grant) {
        actor initiator;
        initiator.principal = pending.principal;
        initiator.owner = granted.claims.holder.owner;
        set_origin(initiator, pending.origin);
        const auto fenced =
            co_await raise_fence(services.database, granted, std::move(initiator), pending.fence_deadline);
        if (!fenced) {
            if (must_release_undelivered(pending))
                co_await release_abandoned_lease(services.locks, granted.claims, pending.origin);
            co_return fenced.error();
        }
    }
    if (pending.is_kept_lease) {
        using std::chrono::milliseconds;
        const auto rights_left =
            std::chrono::floor<milliseconds>(pending.rights_until - http::rights::time_point::clock::now());
        const auto max_hold = std::clamp(rights_left, milliseconds{1}, pending.max_hold);
        co_return kept_response(services.locks, std::move(granted), max_hold, std::move(pending.origin),
                                std::move(pending.stream_places));
    }
    co_return granted_response(services, std::move(granted), std::move(pending.origin),
                               must_release_undelivered(pending));
}

/// Answers that the resource is locked, with the maximum wait_ms of one call and, if allowed, the holder.
http::awaitable_response answer_locked(const lease_services& services, pending_acquire pending, failure locked) {
    locked.facts["max_wait_ms"] = services.settings.protocol.max_wait.count();
    auto& names = pending.show_holder_of;
    const std::size_t exclusive = names.size();
    std::ranges::move(pending.show_exclusive_holder_of, std::back_inserter(names));
    for (std::size_t i = 0; i < names.size(); ++i) {
        const auto seen = co_await services.locks.find_leases(std::move(names[i]), 1);
        if (!seen || seen->leases.empty() || (seen->shared && i >= exclusive)) continue;
        const lockcore::lease_claims& claims = seen->leases.front().claims;
        const std::string& owner = claims.holder.owner;
        if (owner.empty()) {
            locked.facts["owner"] = nullptr;
        } else {
            locked.facts["owner"] = owner;
        }
        locked.facts["principal"] = claims.holder.principal;
        locked.facts["fencing_token"] = lockcore::value_of(claims.token);
        break;
    }
    co_return locked;
}

/// Ends an acquisition whose caller hung up, or which the gateway cancelled, although the lease was granted.
http::awaitable_response answer_cancelled_grant(const lease_services& services, pending_acquire pending,
                                                lockcore::lease granted) {
    if (!must_release_undelivered(pending)) {
        const auto repeatable = make_failure(
            errc::shutting_down, "The call was cancelled; repeat it with the same Idempotency-Key to get the lease.");
        co_return repeatable;
    }
    co_await release_abandoned_lease(services.locks, std::move(granted.claims), pending.origin);
    const auto released = make_failure(errc::shutting_down, "The call was cancelled; the lease was released.");
    co_return released;
}

http::awaitable_response answer_outcome(const lease_services& services, pending_acquire pending,
                                        lockcore::result<lockcore::lease> granted) {
    if (!granted) {
        failure refused = to_failure(granted.error());
        if (refused.code == errc::resource_locked)
            co_return co_await answer_locked(services, std::move(pending), std::move(refused));
        co_return refused;
    }
    const bool cancelled = (co_await asio::this_coro::cancellation_state).cancelled() != asio::cancellation_type::none;
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    if (cancelled) co_return co_await answer_cancelled_grant(services, std::move(pending), std::move(*granted));
    co_return co_await answer_grant(services, std::move(pending), std::move(*granted));
}

/// Waits for a grant and answers. Many calls may wait here for long, so this coroutine keeps as little as possible.
http::awaitable_response wait_for_grant(const lease_services& services, pending_acquire pending,
                                        awaitable<lockcore::result<lockcore::lease>> acquiring) {
    // A cancellation must not throw: a lease that was granted all the same has to be answered or released.
    co_await asio::this_coro::throw_if_cancelled(false);
    auto outcome = co_await std::move(acquiring);
    pending.acquisition = {};  // a lease that was granted is counted by its event from here on
    co_return co_await answer_outcome(services, std::move(pending), std::move(outcome));
}

/// Returns the answer to the release of a hold: 204 if the lease has ended, and its token is sealed if that was asked
/// for; otherwise what is left.
http::response released_response(const lockcore::lease_claims& claims, std::string_view lease_id,
                                 std::uint32_t holds_left, seal_result seal) {
    if (holds_left > 0 || seal == seal_result::not_sealed)
        return http::json_response(render_remaining_holds(claims, lease_id, holds_left, seal));
    http::response out;
    out.status = 204;
    return out;
}

/// Releases the hold of a caller that asked for a seal (`?seal=true`): seals the token, if this is the last hold, and
/// then releases the hold.
http::awaitable_response seal_and_release(const lease_services& services, lockcore::lease_claims claims,
                                          http::request r) {
    gateway_seal_ports ports(services.locks, services.database);
    auto seal = co_await lease_seal::prepare(ports, claims, claims.may_be_shared);
    if (!seal) co_return seal.error();
    bool is_sealed = false;
    if (seal->is_last_hold()) {
        const auto raised = co_await seal->raise_fences(make_actor(claims, r), r.deadline);
        if (!raised) co_return raised.error();
        is_sealed = true;
    }
    const auto released = co_await services.locks.release(claims, r.origin);
    if (!released) co_return to_failure(released.error());
    if (!is_sealed && released->holds_left == 0) {
        // The hold is gone also where this fails, so the call has succeeded.
        is_sealed = co_await seal_after_release(ports, claims, make_actor(claims, r), r.deadline);
    }
    co_return released_response(claims, r.path_parameters.at(0), released->holds_left,
                                is_sealed ? seal_result::sealed : seal_result::not_sealed);
}

}  // namespace

// Not a coroutine, so that its local variables are freed before the wait begins.
http::awaitable_response acquire_lease(const lease_services& services, http::request r) {
    auto wanted = parse_lease_request(r, services.settings.protocol);
    if (!wanted) return http::as_awaitable(wanted.error());
    const auto allowed = r.rights->require(scope::leases, lockcore::all_resources(wanted->acquire));
    if (!allowed) return http::as_awaitable(allowed.error());
    auto acquisition = admit_acquisition(services, r.caller, r.peer, wanted->acquire, wanted->any_of);
    if (!acquisition) return http::as_awaitable(acquisition.error());
    pending_acquire pending;
    pending.acquisition = std::move(*acquisition);
    pending.is_kept_lease = wanted->acquire.kept;
    if (pending.is_kept_lease) {
        auto places = admit_stream(services.limiter, r, {limits::use::streams});
        if (!places) return http::as_awaitable(places.error());
        pending.stream_places = std::move(*places);
    }
    pending.origin = std::move(r.origin);
    pending.principal = std::move(r.principal);
    pending.fence_on_grant = wanted->fence_on_grant;
    pending.max_hold = wanted->max_hold;
    pending.rights_until = r.rights_until;
    const auto may_show = [&](const auto& name) { return r.rights->require(scope::history, name.str()).has_value(); };
    if (!wanted->any_of)
        std::ranges::copy_if(wanted->acquire.resources, std::back_inserter(pending.show_holder_of), may_show);
    std::ranges::copy_if(wanted->acquire.shared, std::back_inserter(pending.show_exclusive_holder_of), may_show);
    pending.has_idempotency_key = !wanted->acquire.idempotency_key.empty();
    pending.fence_deadline = r.deadline + wanted->acquire.wait;
    auto acquiring = wanted->any_of ? acquire_any(services, std::move(wanted->acquire))
                                    : services.locks.acquire(std::move(wanted->acquire));
    return wait_for_grant(services, std::move(pending), std::move(acquiring));
}

http::awaitable_response cancel_acquisition(const lease_services& services, http::request r) {
    auto wanted = parse_cancellation(r, services.settings.protocol);
    if (!wanted) co_return wanted.error();
    const auto allowed = r.rights->require(scope::leases, lockcore::all_resources(wanted->acquire));
    if (!allowed) co_return allowed.error();
    if (wanted->any_of) {
        const auto cancelled = co_await cancel_any(services.locks, std::move(wanted->acquire));
        if (!cancelled) co_return to_failure(cancelled.error());
    } else {
        const auto cancelled = co_await services.locks.cancel(std::move(wanted->acquire));
        if (!cancelled) co_return to_failure(cancelled.error());
    }
    http::response out;
    out.status = 204;
    co_return out;
}

http::awaitable_response renew_lease(const lease_services& services, http::request r) {
    const auto ttl = parse_renewal(r, services.settings.protocol);
    if (!ttl) co_return ttl.error();
    auto claims = open_lease(services.locks, r.path_parameters.at(0), scope::leases, r);
    if (!claims) co_return claims.error();
    const auto renewed = co_await services.locks.renew(std::move(*claims), *ttl, r.origin);
    if (!renewed) co_return to_failure(renewed.error());
    co_return lease_response(*renewed, 200, services.settings.protocol.max_hold);
}

http::awaitable_response show_lease(const lease_services& services, http::request r) {
    auto claims = open_lease(services.locks, r.path_parameters.at(0), scope::leases, r);
    if (!claims) co_return claims.error();
    if (r.media_type == event_stream) co_return co_await watch_lease(services, std::move(*claims), std::move(r));
    const auto seen = co_await services.locks.inspect(std::move(*claims));
    if (!seen) co_return to_failure(seen.error());
    // Not bound to the validity as the answer to a grant is: another call may have renewed the lease meanwhile.
    http::response out = http::json_response({});
    http::expiring_text& body = out.expiring_body.emplace();
    body.valid_until = lockcore::validity_time::max();
    body.render = [lease = *seen](std::chrono::milliseconds /*until then*/, std::chrono::milliseconds served) {
        using std::chrono::milliseconds;
        const auto left = std::chrono::floor<milliseconds>(lease.valid_until - lockcore::boot_clock::now());
        return render_lease(lease, {std::max(left, milliseconds{0}), served});
    };
    co_return out;
}

http::awaitable_response release_lease(const lease_services& services, http::request r) {
    http::fault_list faults;
    const http::query_reader query(r.query, {"seal"}, faults);
    const bool wants_seal = query.boolean("seal").value_or(false);
    if (!r.body.empty()) {  // has no field; a body such as {"seal":true} is refused, because it would have no effect
        const auto body = http::parse_object_body(r);
        if (!body) co_return body.error();
        http::object_reader(*body, "", faults).refuse_unknown({});
    }
    if (!faults.empty()) co_return std::move(faults).to_failure();
    const auto claims = open_lease(services.locks, r.path_parameters.at(0), scope::leases, r);
    if (!claims) co_return claims.error();
    if (wants_seal && claims->resources.empty()) {
        const failure refused =
            invalid_field("seal", "is for exclusive resources; the lease shares all of its own, and others read on");
        co_return refused;
    }
    if (wants_seal) co_return co_await seal_and_release(services, *claims, std::move(r));
    const auto released = co_await services.locks.release(*claims, r.origin);
    if (!released) co_return to_failure(released.error());
    co_return released_response(*claims, r.path_parameters.at(0), released->holds_left, seal_result::not_requested);
}

http::awaitable_response list_leases(const lease_services& services, http::request r) {
    const lockcore::cell_id cell = services.settings.protocol.cell;
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
    const auto waiting = co_await services.waiting.count(std::move(prefix), r.deadline);
    co_return http::json_response(render_live_leases(*page, waiting, services.settings.protocol.nodes.size()));
}

}  // namespace fencegate::api
