#include <gateway/api/leases/live_leases.hpp>

#include <gateway/api/cell.hpp>
#include <gateway/api/leases/lease_render.hpp>
#include <gateway/api/leases/lock_failures.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/http/codec/problem.hpp>
#include <gateway/http/codec/query.hpp>
#include <gateway/pg/write/fence_executor.hpp>

#include <lockcore/lock_manager.hpp>

#include <algorithm>

namespace fencegate::api {
namespace {

using boost::asio::awaitable;

constexpr std::int64_t limit_max = 1'000;
/// Maximum number of resources whose waiting callers the list counts.
constexpr std::size_t waiting_resources_max = 1'000;
constexpr std::size_t reason_bytes_max = 500;

result<lockcore::resource_name> resource_of(const http::request& r) {
    auto name = lockcore::resource_name::parse(r.path_parameters.at(0));
    if (!name) return invalid_field("resource", name.error().detail);
    return std::move(*name);
}

/// An operator's call about one resource.
struct resource_order {
    lockcore::resource_name resource;
    std::string reason;  ///< For the history.
    std::optional<std::uint64_t> token;
};

std::string read_reason(const http::object_reader& body) {
    if (!body.has("reason")) body.fault("reason", "is required, because the history records it");
    const auto reason = body.text("reason", reason_bytes_max);
    if (reason && reason->find_first_not_of(" \t\r\n") == std::string_view::npos)
        body.fault("reason", "must not be blank, because the history records it");
    return std::string(reason.value_or(""));
}

/// Reads the resource of the path, and of the body the reason and one more field, `token_name`. The caller needs the
/// scope `operate` for the resource.
///
/// Errors: the first fault of the path, errc::forbidden, the first fault of the body's JSON, or all faults of its fields.
result<resource_order> read_order(const http::request& r, std::string_view token_name,
                                  http::integer_bounds token_bounds, bool token_required) {
    auto resource = resource_of(r);
    if (!resource) return resource.error();
    const auto allowed = r.rights->require(scope::operate, resource->str());
    if (!allowed) return allowed.error();
    const auto parsed = http::parse_object_body(r);
    if (!parsed) return parsed.error();
    http::fault_list faults;
    const http::object_reader body(*parsed, "", faults);
    body.refuse_unknown({"reason", token_name});
    resource_order out{std::move(*resource), read_reason(body), {}};
    if (token_required && !body.has(token_name)) body.fault(token_name, "is missing");
    if (const auto token = body.integer(token_name, token_bounds)) out.token = static_cast<std::uint64_t>(*token);
    if (!faults.empty()) return std::move(faults).to_failure();
    return out;
}

actor make_operator(const http::request& r) {
    actor initiator;
    initiator.principal = r.principal;
    initiator.trace_id = r.trace_id;
    return initiator;
}

}  // namespace

awaitable<http::response> list_leases(gateway_services services, http::request r) {
    http::fault_list faults;
    const http::query_reader query(r.query, {"resource_prefix", "limit", "cursor"}, faults);
    lockcore::lease_query wanted;
    wanted.prefix = query.text("resource_prefix").value_or("");
    if (!is_resource_prefix(wanted.prefix)) faults.add("resource_prefix", "is not the beginning of a resource's name");
    const std::string cursor(query.text("cursor").value_or(""));
    const auto marked = lockcore::split_cell(cursor);
    if (marked) wanted.after = marked->name;
    if (!marked || !is_resource_prefix(wanted.after)) faults.add("cursor", "is not a next_cursor of this gateway");
    wanted.limit = static_cast<std::size_t>(query.integer("limit", {1, limit_max}).value_or(100));
    wanted.until = r.deadline;
    std::string prefix = wanted.prefix;
    if (!faults.empty()) co_return http::problem_response(std::move(faults).to_failure(), r.request_id);
    const lockcore::cell_id cell = services.settings.locks.cell;
    if (!cursor.empty() && marked->cell != cell)
        co_return http::problem_response(other_cell_failure("The cursor", marked->cell, cell), r.request_id);
    const auto allowed = r.rights->require_for_prefix(scope::history, prefix);
    if (!allowed) co_return http::problem_response(allowed.error(), r.request_id);
    auto page = co_await services.locks.list_leases(std::move(wanted));
    if (!page) co_return http::problem_response(to_failure(page.error()), r.request_id);
    if (!page->next.empty()) page->next = lockcore::mark_cell(cell, page->next);
    const auto waiting = co_await services.locks.list_waiters(std::move(prefix), waiting_resources_max);
    co_return http::json_response(render_live_leases(*page, waiting, services.settings.locks.nodes.size()));
}

awaitable<http::response> revoke_lease(gateway_services services, http::request r) {
    const auto order = read_order(r, "expected_token", {1, lockcore::fencing_token_max + 1}, false);
    if (!order) co_return http::problem_response(order.error(), r.request_id);

    const auto seen = co_await services.locks.find_lease(order->resource);
    if (!seen) co_return http::problem_response(to_failure(seen.error()), r.request_id);
    if (!*seen) {
        const failure none = make_failure(errc::not_found, "Nobody holds a lease on this resource.");
        co_return http::problem_response(none, r.request_id);
    }
    const lockcore::live_lease& lease = **seen;
    // The revocation ends the lease for all its resources.
    const auto allowed = r.rights->require(scope::operate, lease.claims.resources);
    if (!allowed) co_return http::problem_response(allowed.error(), r.request_id);
    const std::uint64_t token = lockcore::value_of(lease.claims.token);
    if (order->token && *order->token != token) {
        failure mismatch = make_failure(errc::expectation_failed,
                                        "The lease has another token than expected_token; it was not revoked.");
        mismatch.facts["fencing_token"] = token;
        co_return http::problem_response(mismatch, r.request_id);
    }
    const auto sealed = co_await services.fences.raise(lease.claims.resources, lockcore::fencing_token{token + 1},
                                                       make_operator(r), "revoked: " + order->reason, r.deadline);
    if (!sealed) co_return http::problem_response(sealed.error(), r.request_id);
    lockcore::lock_manager::revocation revocation_details;
    revocation_details.actor.principal = r.principal;
    revocation_details.reason = order->reason;
    revocation_details.trace_id = r.trace_id;
    const auto ended = co_await services.locks.revoke(lease.claims, std::move(revocation_details));
    // A lease that ended meanwhile is sealed too, so the call succeeded.
    if (!ended && ended.error().code != lockcore::errc::lease_lost)
        co_return http::problem_response(to_failure(ended.error()), r.request_id);
    http::response out;
    out.status = 204;
    co_return out;
}

awaitable<http::response> repair_fence(gateway_services services, http::request r) {
    const auto order = read_order(r, "last_fencing_token", {0, lockcore::fencing_token_max + 1}, true);
    if (!order) co_return http::problem_response(order.error(), r.request_id);

    const auto repaired = co_await services.fences.repair(order->resource, lockcore::fencing_token{*order->token},
                                                          make_operator(r), order->reason, r.deadline);
    if (!repaired) co_return http::problem_response(repaired.error(), r.request_id);
    std::string text;
    http::object_writer(text)
        .text("resource", repaired->resource)
        .number("last_fencing_token", repaired->last_fencing_token)
        .end();
    co_return http::json_response(std::move(text));
}

}  // namespace fencegate::api
