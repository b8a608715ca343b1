#include <gateway/api/leases/leases.hpp>

#include <gateway/api/leases/kept_lease.hpp>
#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/leases/lease_render.hpp>
#include <gateway/api/leases/lease_request.hpp>
#include <gateway/api/leases/lock_failures.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/http/codec/problem.hpp>
#include <gateway/http/codec/query.hpp>
#include <gateway/pg/write/fence_executor.hpp>

#include <lockcore/lock_manager.hpp>

#include <boost/asio/this_coro.hpp>

#include <algorithm>

namespace fencegate::api {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

http::response granted_response(services with, lockcore::lease granted, std::string trace_id,
                                bool give_back_undelivered) {
    http::response out = lease_response(granted, granted.entered || granted.hold_count > 1 ? 200 : 201);
    out.headers.emplace_back("Location", location_of(granted.id));
    if (granted.repeated) out.headers.emplace_back("Idempotency-Replayed", "true");
    if (!give_back_undelivered) return out;
    out.undo_undelivered = [with, claims = std::move(granted.claims), trace_id = std::move(trace_id)] {
        return give_back(with, claims, trace_id);
    };
    return out;
}

/// Raises the fence to the token of a grant, which uses up some of its validity (docs/protocol.md R6). Errors: the
/// lease is to be given back.
awaitable<result<void>> fence(services with, const lockcore::lease& granted, actor by, pg::deadline until) {
    auto raised = co_await with.fences.raise(granted.claims.resources, granted.claims.token, std::move(by),
                                             "fence_on_grant", until);
    if (!raised) co_return raised.error();
    if (lockcore::boot_clock::now() < granted.valid_until) co_return result<void>{};
    co_return make_failure(errc::storage_unavailable,
                           "Raising the fence took longer than the lease lasts; it was given back.");
}

/// What is left of a request while it waits for its lease, which may be long.
struct asking {
    std::string request_id, trace_id, principal;
    bool fence_on_grant = false, kept = false, keyed = false;
    std::chrono::milliseconds max_hold{};
    /// Where the caller may know who holds them: that needs the scope `history`, as the list of live leases does.
    std::vector<lockcore::resource_name> tell_holder_of;
    pg::deadline until;
};

/// Whether a grant goes back where its caller did not get it. A stream has a hold of its own; otherwise a caller with
/// an idempotency key may come again for this very lease, or has come already.
bool to_give_back(const asking& from) {
    return from.kept || !from.keyed;
}

awaitable<http::response> answer_grant(services with, asking from, lockcore::lease granted) {
    if (from.fence_on_grant) {
        actor by;
        by.principal = from.principal;
        by.owner = granted.claims.by.owner;
        by.trace_id = from.trace_id;
        const auto fenced = co_await fence(with, granted, std::move(by), from.until);
        if (!fenced) {
            if (to_give_back(from)) co_await give_back(with, granted.claims, from.trace_id);
            co_return http::problem_response(fenced.error(), from.request_id);
        }
    }
    if (from.kept) co_return kept_response(with, std::move(granted), from.max_hold, std::move(from.trace_id));
    co_return granted_response(with, std::move(granted), std::move(from.trace_id), to_give_back(from));
}

/// A refusal because others hold the resource: how long one call may wait for it, and who holds it now.
awaitable<http::response> answer_locked(services with, asking from, failure locked) {
    locked.facts["max_wait_ms"] = with.settings.locks.max_wait.count();
    for (auto& resource : from.tell_holder_of) {
        const auto seen = co_await with.locks.look(std::move(resource));
        if (!seen || !*seen) continue;
        const std::string& owner = (*seen)->claims.by.owner;
        if (owner.empty()) {
            locked.facts["owner"] = nullptr;
        } else {
            locked.facts["owner"] = owner;
        }
        locked.facts["principal"] = (*seen)->claims.by.principal;
        locked.facts["fencing_token"] = lockcore::value_of((*seen)->claims.token);
        break;
    }
    co_return http::problem_response(locked, from.request_id);
}

awaitable<http::response> answer_outcome(services with, asking from, lockcore::result<lockcore::lease> granted) {
    if (!granted) {
        failure refused = to_failure(granted.error());
        if (refused.code == errc::resource_locked)
            co_return co_await answer_locked(with, std::move(from), std::move(refused));
        co_return http::problem_response(refused, from.request_id);
    }
    const bool caller_gone =
        (co_await asio::this_coro::cancellation_state).cancelled() != asio::cancellation_type::none;
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    if (caller_gone) {
        if (to_give_back(from)) co_await give_back(with, granted->claims, from.trace_id);
        const auto why = make_failure(errc::shutting_down,
                                      "The call was cancelled; without an Idempotency-Key the lease was given back.");
        co_return http::problem_response(why, from.request_id);
    }
    co_return co_await answer_grant(with, std::move(from), std::move(*granted));
}

/// Many may be here, and for long: what is needed later is in other frames.
awaitable<http::response> wait_for_grant(services with, asking from,
                                         awaitable<lockcore::result<lockcore::lease>> asked) {
    // Cancelled or not, what was granted has to be either answered or given back: no step in between may be cut short
    // by an exception.
    co_await asio::this_coro::throw_if_cancelled(false);
    co_return co_await answer_outcome(with, std::move(from), co_await std::move(asked));
}

awaitable<http::response> answer(http::response ready) {
    co_return ready;
}

}  // namespace

// A plain function: what only it needs is gone before the wait begins.
awaitable<http::response> acquire_lease(services with, http::request r) {
    auto wanted = parse_lease_request(r, with.settings.locks);
    if (!wanted) return answer(http::problem_response(wanted.error(), r.request_id));
    const auto room = check_room_for_leases(with);
    if (!room) return answer(http::problem_response(room.error(), r.request_id));
    asking from;
    from.request_id = std::move(r.request_id);
    from.trace_id = std::move(r.trace_id);
    from.principal = std::move(r.principal);
    from.fence_on_grant = wanted->fence_on_grant;
    from.kept = wanted->acquire.kept;
    from.max_hold = wanted->max_hold;
    if (r.scopes.has(scope::history)) from.tell_holder_of = wanted->acquire.resources;
    from.keyed = !wanted->acquire.idempotency_key.empty();
    from.until = r.deadline + wanted->acquire.wait;
    auto asked = with.locks.acquire(std::move(wanted->acquire));
    return wait_for_grant(with, std::move(from), std::move(asked));
}

awaitable<http::response> renew_lease(services with, http::request r) {
    const auto ttl = parse_renewal(r, with.settings.locks);
    if (!ttl) co_return http::problem_response(ttl.error(), r.request_id);
    auto claims = open_lease(with, r.path_parameters.at(0), r);
    if (!claims) co_return http::problem_response(claims.error(), r.request_id);
    const auto renewed = co_await with.locks.renew(std::move(*claims), *ttl, r.trace_id);
    if (!renewed) co_return http::problem_response(to_failure(renewed.error()), r.request_id);
    co_return lease_response(*renewed, 200, with.settings.locks.max_hold);
}

awaitable<http::response> show_lease(services with, http::request r) {
    auto claims = open_lease(with, r.path_parameters.at(0), r);
    if (!claims) co_return http::problem_response(claims.error(), r.request_id);
    const auto seen = co_await with.locks.inspect(std::move(*claims));
    if (!seen) co_return http::problem_response(to_failure(seen.error()), r.request_id);
    // What a majority saw is told even where nothing of it is certain any more: the lease may be renewed elsewhere.
    http::response out = http::json_response({});
    http::expiring_text& body = out.expiring_body.emplace();
    body.valid_until = lockcore::validity_time::max();
    body.render = [lease = *seen](std::chrono::milliseconds, std::chrono::milliseconds served) {
        using std::chrono::milliseconds;
        const auto left = std::chrono::floor<milliseconds>(lease.valid_until - lockcore::boot_clock::now());
        return render_lease(lease, {std::max(left, milliseconds{0}), served});
    };
    co_return out;
}

awaitable<http::response> release_lease(services with, http::request r) {
    http::fault_list faults;
    const http::query_reader query(r.query, {"seal"}, faults);
    const bool seal = query.boolean("seal").value_or(false);
    if (!faults.empty()) co_return http::problem_response(std::move(faults).to_failure(), r.request_id);
    const auto claims = open_lease(with, r.path_parameters.at(0), r);
    if (!claims) co_return http::problem_response(claims.error(), r.request_id);

    seal_decision decision;
    if (seal) {
        const auto prepared = co_await prepare_seal(with, *claims);
        if (!prepared) co_return http::problem_response(prepared.error(), r.request_id);
        decision = *prepared;
    }
    if (decision.seal) {
        const auto sealed = co_await seal_token(with, *claims, acting(*claims, r), r.deadline);
        if (!sealed) {
            abandon_seal(with, *claims, decision);
            co_return http::problem_response(sealed.error(), r.request_id);
        }
    }
    const auto released = co_await with.locks.release(*claims, r.trace_id);
    if (!released) co_return http::problem_response(to_failure(released.error()), r.request_id);
    bool unsealed = seal && !decision.seal;
    if (unsealed && released->holds_left == 0) {
        // The other holds were given back meanwhile, perhaps with a seal that found this one.
        const auto sealed = co_await seal_token(with, *claims, acting(*claims, r), r.deadline);
        if (!sealed) co_return http::problem_response(sealed.error(), r.request_id);
        unsealed = false;
    }
    if (released->holds_left > 0 || unsealed) {
        co_return http::json_response(
            render_remaining_holds(*claims, r.path_parameters.at(0), released->holds_left, unsealed));
    }
    http::response out;
    out.status = 204;
    co_return out;
}

}  // namespace fencegate::api
