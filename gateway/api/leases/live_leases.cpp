#include <gateway/api/leases/leases.hpp>

#include <gateway/api/leases/lease_render.hpp>
#include <gateway/api/leases/lease_request.hpp>
#include <gateway/api/leases/lock_failures.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/pg/database.hpp>
#include <gateway/runtime/rfc3339.hpp>

#include <lockcore/lock_manager.hpp>

namespace fencegate::api {
namespace {

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
awaitable<failure> make_no_lease_failure(const gateway_services& services, std::string principal, std::string resource,
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

http::awaitable_response list_leases(const gateway_services& services, http::request r) {
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

http::awaitable_response revoke_lease(const gateway_services& services, http::request r) {
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

http::awaitable_response repair_fence(const gateway_services& services, http::request r) {
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
