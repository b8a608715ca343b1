#include <gateway/api/routes.hpp>

#include <gateway/api/addressing.hpp>
#include <gateway/api/history/history.hpp>
#include <gateway/api/leases/leases.hpp>
#include <gateway/api/negotiation.hpp>
#include <gateway/api/service/documents.hpp>
#include <gateway/api/service/monitoring.hpp>
#include <gateway/api/service/state.hpp>
#include <gateway/api/tables/answer_form.hpp>
#include <gateway/api/tables/tables.hpp>
#include <gateway/api/writes/writes.hpp>

namespace fencegate::api {
namespace {

/// The coroutine function of a route.
using endpoint = http::awaitable_response (*)(const gateway_services&, http::request);

http::handler bind(const gateway_services& services, endpoint handle) {
    return [&services, handle](http::request r) { return handle(services, std::move(r)); };
}

/// Returns a handler that calls check_cell() first, so that a router that asks by cell is not misled.
http::handler bind_in_own_cell(const gateway_services& services, endpoint handle) {
    return [&services, handle](http::request r) {
        const auto own = check_cell(r, services.settings.locks.cell);
        return own ? handle(services, std::move(r)) : http::as_awaitable(own.error());
    };
}

/// Returns a handler that calls check_cell() and negotiate() first, so that nothing runs that is meant for another cell, or
/// whose answer the caller would not accept.
http::handler bind(const gateway_services& services, endpoint handle, answer_options options) {
    return [&services, handle, options = std::move(options)](http::request r) {
        const auto own = check_cell(r, services.settings.locks.cell);
        if (!own) return http::as_awaitable(own.error());
        const auto agreed = negotiate(r, options);
        return agreed ? handle(services, std::move(r)) : http::as_awaitable(agreed.error());
    };
}

}  // namespace

std::vector<http::route> routes(const gateway_services& services) {
    using enum http::method;
    std::vector<http::route> out;
    // All but the nodes and the guard concern resources, which their handlers know.
    const auto add_api = [&](http::method verb, const std::string& path, scope required_scope,
                             const answer_options& options, endpoint handle, bool long_waiting = false) {
        out.push_back({verb, path, required_scope, bind(services, handle, options), long_waiting, true});
        if (options.postgrest) out.back().complete_failure = with_postgrest_code;
    };
    const auto add = [&](http::method verb, const char* path, endpoint handle) {
        out.push_back({verb, path, std::nullopt, bind(services, handle), false});
    };
    const answer_options as_json;
    const answer_options query{.has_parameters = true};
    const answer_options acquire{{"application/json", "text/event-stream"}, {"tx=commit"}, true};
    const answer_options show{{"application/json", "text/event-stream"}, {}};
    const answer_options release{{"application/json"}, {"tx=commit"}, true, true};
    const answer_options history{{"application/json", "application/x-ndjson", "text/csv"}, {}, false, true};
    const answer_options stream{{"text/event-stream"}, {}, false, true};
    const auto with_rows = [](std::vector<std::string_view> preferences, bool changes) {
        preferences.insert(preferences.end(), {"count=exact", "count=planned", "count=estimated"});
        return answer_options{row_media_types(), std::move(preferences), changes, true, true};
    };
    const auto read_rows = with_rows({}, false);
    const auto insert =
        with_rows({"return=minimal", "return=representation", "resolution=merge-duplicates",
                   "resolution=ignore-duplicates", "missing=default", "missing=null", "max-affected", "tx=commit"},
                  true);
    const auto change = with_rows({"return=minimal", "return=representation", "max-affected", "tx=commit"}, true);
    const answer_options write{{"application/json"}, {"tx=commit"}, true};
    add_api(post, "/v1/leases", scope::leases, acquire, acquire_lease, true);
    add_api(post, "/v1/leases/cancel", scope::leases, write, cancel_acquisition);
    const auto add_of_lease = [&](http::method verb, const char* path, const answer_options& options, endpoint handle) {
        add_api(verb, path, scope::leases, options, handle);
        out.back().uses_lease = true;
    };
    add_of_lease(post, "/v1/leases/{lease_id}/renew", write, renew_lease);
    add_of_lease(get, "/v1/leases/{lease_id}", show, show_lease);
    add_of_lease(del, "/v1/leases/{lease_id}", release, release_lease);
    add_api(get, "/v1/leases", scope::history, query, list_leases);
    add_api(del, "/v1/resources/{resource}/lease", scope::operate, write, revoke_lease);
    add_api(post, "/v1/resources/{resource}/fence", scope::operate, write, repair_fence);
    add_api(get, "/v1/resources/{resource}", scope::history, query, show_resource);
    // The same with the resource in the query, for proxies that decode %2F.
    const answer_options write_by_query{{"application/json"}, {"tx=commit"}, true, true};
    add_api(del, "/v1/resource/lease", scope::operate, write_by_query, revoke_lease);
    add_api(post, "/v1/resource/fence", scope::operate, write_by_query, repair_fence);
    add_api(get, "/v1/resource", scope::history, query, show_resource);
    add_api(post, "/v1/writes", scope::writes, write, apply_write, true);
    for (const std::string base : {"/v1/tables/", "/rest/v1/"}) {
        add_api(get, base + "{table}", scope::writes, read_rows, read_table);
        add_api(post, base + "{table}", scope::writes, insert, write_table);
        for (const auto verb : {patch, del})
            add_api(verb, base + "{table}", scope::writes, change, write_table);
    }
    for (const std::string base : {"/v1/rpc/", "/rest/v1/rpc/"}) {
        add_api(get, base + "{function}", scope::writes, read_rows, read_function);
        add_api(post, base + "{function}", scope::writes, change, call_function);
    }
    add_api(get, "/v1/history", scope::history, history, show_history);
    add_api(get, "/v1/history/summary", scope::history, query, summarize_history);
    add_api(get, "/v1/history/stream", scope::history, stream, follow_history);
    out.push_back({get, "/v1/nodes", scope::operate, bind(services, show_nodes, as_json)});
    out.push_back({get, "/v1/guard", scope::operate, bind(services, show_guard, as_json)});
    add(get, "/healthz", show_health);
    out.back().is_probe = true;
    const auto add_readiness = [&](const char* path, endpoint handle) {
        out.push_back({get, path, std::nullopt, bind_in_own_cell(services, handle), false});
        out.back().is_readiness = true;
    };
    add_readiness("/readyz", show_readiness);
    add_readiness("/readyz/leases", show_lease_readiness);
    add_readiness("/readyz/writes", show_write_readiness);
    add(get, "/metrics", show_metrics);
    add(get, "/openapi.json", show_openapi);
    add(get, "/console", show_console);
    add(get, "/console/{file}", show_console_file);
    add(get, "/problems/{slug}", show_problem);
    return out;
}

}  // namespace fencegate::api
