#include <gateway/api/leases/lease_access.hpp>

#include <gateway/api/leases/lease_request.hpp>
#include <gateway/api/routes.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/header_values.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/pg/database.hpp>
#include <gateway/runtime/log.hpp>
#include <gateway/runtime/rfc3339.hpp>
#include <gateway/runtime/text.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/json/object.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

namespace fencegate::api {
namespace {

void read_resource_header(std::string_view text, http::fault_list& faults, std::vector<lockcore::resource_name>& out) {
    while (true) {
        const auto comma = text.find(',');
        const auto decoded = runtime::percent_decode(http::trim(text.substr(0, comma)));
        if (!decoded) return faults.add("Fencing-Resource", "has a % without two hexadecimal digits; send %25");
        auto name = lockcore::resource_name::parse(*decoded);
        if (!name) return faults.add("Fencing-Resource", name.error().detail + "; several are separated by commas");
        out.push_back(std::move(*name));
        if (comma == std::string_view::npos) break;
        text.remove_prefix(comma + 1);
    }
    const auto before = [](const auto& a, const auto& b) { return a.str() < b.str(); };
    std::ranges::sort(out, before);
    const auto duplicate =
        std::ranges::adjacent_find(out, [](const auto& a, const auto& b) { return a.str() == b.str(); });
    if (out.size() > lockcore::resources_max || duplicate != out.end() ||
        lockcore::names_bytes(out) > lockcore::names_bytes_max) {
        faults.add("Fencing-Resource", "has to be 1 to " + std::to_string(lockcore::resources_max) +
                                           " different names of resources with at most " +
                                           std::to_string(lockcore::names_bytes_max) + " bytes together");
    }
}

/// Returns the claims of the headers that carry a token of another issuer.
result<lockcore::lease_claims> read_bare_token(const http::request& r) {
    const auto granted = r.rights->require_for_some(scope::bare_tokens);
    if (!granted) return granted.error();
    lockcore::lease_claims out;
    out.holder.principal = r.principal;
    http::fault_list faults;
    read_resource_header(r.header("fencing-resource"), faults, out.resources);
    const auto text = http::trim(r.header("fencing-token"));
    std::uint64_t token = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), token);
    if (error != std::errc{} || end != text.data() + text.size() || token < 1 || token > lockcore::fencing_token_max)
        faults.add("Fencing-Token", "has to be an integer from 1 to 9007199254740991");
    if (!faults.empty()) return std::move(faults).to_failure();
    out.token = lockcore::fencing_token{token};
    for (const scope needed : {scope::bare_tokens, scope::writes}) {
        const auto allowed = r.rights->require(needed, out.resources);
        if (!allowed) return allowed.error();
    }
    return out;
}

}  // namespace

errc meaning_of(lockcore::errc code) {
    switch (code) {
        case lockcore::errc::invalid_argument:
            return errc::invalid_request;
        case lockcore::errc::resource_locked:
            return errc::resource_locked;
        case lockcore::errc::no_quorum:
            return errc::no_quorum;
        case lockcore::errc::lease_lost:
            return errc::lease_lost;
        case lockcore::errc::renewals_exhausted:
            return errc::renewals_exhausted;
        case lockcore::errc::lease_not_authentic:
            return errc::lease_not_authentic;
        case lockcore::errc::other_cell:
            return errc::misdirected_request;
        case lockcore::errc::too_many_waiters:
            return errc::too_many_waiters;
        case lockcore::errc::idempotency_mismatch:
            return errc::idempotency_mismatch;
        case lockcore::errc::busy:
            return errc::too_many_requests;
        // A caller that hung up does not read the answer; any other was cancelled because the gateway stops.
        case lockcore::errc::cancelled:
        case lockcore::errc::shutting_down:
            return errc::shutting_down;
    }
    return errc::internal_error;
}

failure to_failure(const lockcore::failure& f) {
    failure out = make_failure(meaning_of(f.code), f.detail);
    if (f.code == lockcore::errc::resource_locked) {
        out.facts["remaining_ms"] = f.remaining.count();
        out.facts["queue_position"] = f.queue_position;
        // A node may have a value that is no lease under the key (`answers` names it), without a known end.
        if (f.answers.empty() || f.remaining.count() > 0) out.retry_after = f.remaining;
    }
    if (f.code == lockcore::errc::other_cell) out.facts["named_cell"] = f.cell;
    if (f.code == lockcore::errc::no_quorum || !f.answers.empty()) out.facts["nodes"] = describe_answers(f.answers);
    return out;
}

boost::json::array describe_answers(const std::vector<lockcore::node_answer>& answers) {
    boost::json::array nodes;
    for (const auto& answer : answers) {
        boost::json::object node{{"name", answer.name}, {"answer", answer.answer}};
        if (!answer.detail.empty()) node["detail"] = answer.detail;
        if (answer.quarantine_left.count() > 0) node["quarantine_left_ms"] = answer.quarantine_left.count();
        nodes.push_back(std::move(node));
    }
    return nodes;
}

result<void> check_lease_use(const lockcore::lease_claims& claims, scope needed, const http::request& r) {
    const auto names = lockcore::all_resources(claims);
    const auto allowed = r.rights->require(needed, names);
    if (!allowed) return allowed.error();
    if (claims.holder.principal == r.principal || r.rights->require(scope::operate, names)) return {};
    return make_failure(errc::forbidden, "The lease belongs to another principal; using it needs the scope 'operate'.");
}

result<lockcore::lease_claims> open_lease(const lockcore::lock_manager& locks, std::string_view lease_id, scope needed,
                                          const http::request& r) {
    auto claims = locks.verify_lease_id(lease_id);
    if (!claims) return to_failure(claims.error());
    const auto allowed = check_lease_use(*claims, needed, r);
    if (!allowed) return allowed.error();
    return std::move(*claims);
}

actor make_actor(const lockcore::lease_claims& claims, const http::request& r) {
    actor initiator;
    initiator.principal = r.principal;
    initiator.owner = claims.holder.owner;
    set_origin(initiator, r.origin);
    return initiator;
}

bool has_fencing_headers(const http::request& r) {
    return r.has_header("fencing-lease") || r.has_header("fencing-resource") || r.has_header("fencing-token");
}

result<lockcore::lease_claims> open_lease_or_token(const lockcore::lock_manager& locks, std::string_view lease_id,
                                                   const http::request& r) {
    const bool bare = r.has_header("fencing-resource") || r.has_header("fencing-token");
    if (bare && !lease_id.empty()) {
        return invalid_field("Fencing-Token", "can't be sent together with a lease, which has a token of its own");
    }
    if (bare) return read_bare_token(r);
    if (!lease_id.empty()) return open_lease(locks, lease_id, scope::writes, r);
    return make_failure(errc::fencing_required,
                        "No lease was sent: put its lease_id into the body of /v1/writes or into the header "
                        "Fencing-Lease.");
}

// What operators do with leases and fences of others.

namespace {

using boost::asio::awaitable;

/// The most leases that one call revokes: as many as may share a resource.
constexpr std::size_t revoked_max = 1'024;
/// How long the answer that there is no lease waits for the history.
constexpr std::chrono::seconds last_end_timeout{1};

/// Returns the operator who makes the request, for the history.
actor make_operator(const http::request& r) {
    actor initiator;
    initiator.principal = r.principal;
    set_origin(initiator, r.origin);
    return initiator;
}

/// Logs what an operator did.
void log_order(std::string_view message, const http::request& r, const operator_order& order, std::uint64_t token) {
    runtime::log(spdlog::level::info, message,
                 {{"resource", order.resource.str()},
                  {"fencing_token", token},
                  {"reason", order.reason},
                  {"request_id", r.request_id},
                  {"trace_id", r.trace_id},
                  {"principal", r.principal}});
}

/// Ends a lease by order of an operator. Seals the token for its exclusive resources before; under shared ones its
/// holder cannot write.
///
/// Errors: those of pg::database::raise_fences; errc::no_quorum; errc::overloaded after the deadline of the request.
awaitable<result<void>> end_lease(const lease_services& services, lockcore::lease_claims claims, const http::request& r,
                                  const operator_order& order) {
    if (std::chrono::steady_clock::now() >= r.deadline) {
        const failure late = make_failure(errc::overloaded, "Not all leases were revoked in time; repeat the call.");
        co_return late;
    }
    if (!claims.resources.empty()) {
        fences_to_raise fences{.resources = claims.resources, .token = claims.token, .seals = true};
        const auto sealed = co_await services.database.raise_fences(std::move(fences), make_operator(r),
                                                                    "revoked: " + order.reason, r.deadline);
        if (!sealed) co_return sealed.error();
    }
    lockcore::lock_manager::revocation cause;
    cause.actor.principal = r.principal;
    cause.reason = order.reason;
    cause.origin = r.origin;
    const std::uint64_t token = lockcore::value_of(claims.token);
    const auto ended = co_await services.locks.revoke(std::move(claims), std::move(cause));
    // The call has succeeded also if the lease ended meanwhile: its token is sealed.
    if (!ended && ended.error().code != lockcore::errc::lease_lost) co_return to_failure(ended.error());
    log_order("lease revoked", r, order, token);
    co_return result<void>{};
}

/// Returns how the event ended a lease; empty if it ended none.
std::string_view describe_end(std::string_view event) {
    if (event == "lease_revoked") return "was revoked";
    if (event == "lease_released") return "was released";
    if (event == "lease_expired") return "expired";
    return {};
}

/// Returns how the latest lease of a resource ended, as the rest of a sentence; empty if the events do not show it.
std::string describe_latest_end(const std::vector<history_item>& newest_first) {
    for (const history_item& item : newest_first) {
        if (item.event == "lease_granted") break;
        const std::string_view end = describe_end(item.event);
        if (end.empty() || !item.fencing_token) continue;
        return "; the latest one, with token " + std::to_string(*item.fencing_token) + ", " + std::string(end) +
               " at " + runtime::to_rfc3339(item.at);
    }
    return {};
}

/// Returns the failure that nobody holds a lease on the resource. It says how the latest lease ended if the resource's
/// newest events show that: an operator who repeats a revocation sees that it has succeeded, and one who revokes a
/// lease that has expired sees that its token is not sealed.
awaitable<failure> make_no_lease_failure(const lease_services& services, std::string principal, std::string resource,
                                         std::chrono::steady_clock::time_point deadline) {
    std::string detail = "Nobody holds a lease on this resource";
    history_query query;
    query.resource = std::move(resource);
    const auto until = std::min(deadline, std::chrono::steady_clock::now() + last_end_timeout);
    const auto page =
        co_await services.database.read_history(std::move(principal), read_cost::cheap, std::move(query), until);
    if (page) detail += describe_latest_end(page->items);
    const failure none = make_failure(errc::not_found, detail + '.');
    co_return none;
}

}  // namespace

http::awaitable_response revoke_lease(const lease_services& services, http::request r) {
    const auto order = parse_operator_order(r, operator_request::revoke_lease);
    if (!order) co_return order.error();

    const auto seen = co_await services.locks.find_leases(order->resource, revoked_max);
    if (!seen) co_return to_failure(seen.error());
    if (seen->leases.empty()) {
        const failure none = co_await make_no_lease_failure(services, r.principal, order->resource.str(), r.deadline);
        co_return none;
    }
    std::vector<lockcore::live_lease> wanted = seen->leases;
    if (order->token)
        std::erase_if(wanted,
                      [&](const auto& lease) { return lockcore::value_of(lease.claims.token) != *order->token; });
    // The revocation ends a lease for all its resources.
    for (const lockcore::live_lease& lease : wanted.empty() ? seen->leases : wanted) {
        const auto allowed = r.rights->require(scope::operate, lockcore::all_resources(lease.claims));
        if (!allowed) co_return allowed.error();
    }
    if (wanted.empty()) {
        failure mismatch = make_failure(errc::expectation_failed,
                                        "No lease on this resource has the token expected_token; none was revoked.");
        mismatch.facts["fencing_token"] = lockcore::value_of(seen->leases.front().claims.token);
        co_return mismatch;
    }
    for (lockcore::live_lease& lease : wanted) {
        const auto ended = co_await end_lease(services, std::move(lease.claims), r, *order);
        if (!ended) co_return ended.error();
    }
    if (seen->total > seen->leases.size()) {
        const failure more = make_failure(errc::overloaded, "Not all leases were revoked; repeat the call.");
        co_return more;
    }
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
    log_order("fence repaired", r, *order, repaired->last_fencing_token);
    std::string text;
    http::object_writer(text)
        .text("resource", repaired->resource)
        .number("last_fencing_token", repaired->last_fencing_token)
        .end();
    co_return http::json_response(std::move(text));
}

}  // namespace fencegate::api
