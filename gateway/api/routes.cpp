#include <gateway/api/routes.hpp>

#include <gateway/api/tables/answer_form.hpp>

namespace fencegate::api {
namespace {

/// The coroutine function of a route.
template <class Area>
using endpoint = http::awaitable_response (*)(const Area&, http::request);

template <class Area>
http::handler bind_to(const Area& services, endpoint<Area> handle) {
    return [&services, handle](http::request r) { return handle(services, std::move(r)); };
}

/// Returns a handler that passes the services of its area to the coroutine.
http::handler bind(const gateway_services& services, endpoint<lease_services> handle) {
    return bind_to(services.leases, handle);
}
http::handler bind(const gateway_services& services, endpoint<write_services> handle) {
    return bind_to(services.writes, handle);
}
http::handler bind(const gateway_services& services, endpoint<history_services> handle) {
    return bind_to(services.history, handle);
}
http::handler bind(const gateway_services& services, endpoint<state_services> handle) {
    return bind_to(services.state, handle);
}

}  // namespace

std::vector<http::route> routes(const gateway_services& services) {
    using enum http::method;
    std::vector<http::route> out;
    const lockcore::cell_id cell = services.state.settings.protocol.cell;
    const auto add = [&](http::method verb, const std::string& path, auto handle) -> http::route& {
        http::route& made = out.emplace_back();
        made.verb = verb;
        made.path = path;
        made.handle = bind(services, handle);
        return made;
    };
    const auto add_negotiated = [&](http::method verb, const std::string& path, scope required_scope,
                                    const http::answer_options& options, auto handle) -> http::route& {
        http::route& made = add(verb, path, handle);
        made.required_scope = required_scope;
        made.own_cell = cell;
        made.options = options;
        return made;
    };
    // All but the nodes and the guard concern resources, which their handlers know.
    const auto add_api = [&](http::method verb, const std::string& path, scope required_scope,
                             const http::answer_options& options, auto handle) -> http::route& {
        http::route& made = add_negotiated(verb, path, required_scope, options, handle);
        made.names_resources = true;
        return made;
    };

    const http::answer_options as_json;
    const http::answer_options query{.has_parameters = true};
    const http::answer_options watchable{.media_types = {"application/json", "text/event-stream"}};
    const http::answer_options acquire{
        .media_types = watchable.media_types, .preferences = {"tx=commit"}, .changes_something = true};
    const http::answer_options history{.media_types = {"application/json", "application/x-ndjson", "text/csv"},
                                       .has_parameters = true};
    const http::answer_options digests{.media_types = {"application/json", "application/x-ndjson"},
                                       .has_parameters = true};
    const http::answer_options openapi{.media_types = {"application/json", "application/openapi+json"}};
    const http::answer_options stream{.media_types = {"text/event-stream"}, .has_parameters = true};
    const http::answer_options write{.preferences = {"tx=commit"}, .changes_something = true};
    http::answer_options write_with_query = write;
    write_with_query.has_parameters = true;
    const auto with_rows = [](std::vector<std::string_view> preferences) {
        preferences.insert(preferences.end(), {"count=exact", "count=planned", "count=estimated"});
        return http::answer_options{
            .media_types = row_media_types(), .preferences = std::move(preferences), .has_parameters = true};
    };
    const auto read_rows = with_rows({});
    http::answer_options insert =
        with_rows({"return=minimal", "return=representation", "resolution=merge-duplicates",
                   "resolution=ignore-duplicates", "missing=default", "missing=null", "max-affected", "tx=commit"});
    http::answer_options change = with_rows({"return=minimal", "return=representation", "max-affected", "tx=commit"});
    insert.changes_something = change.changes_something = true;

    add_api(post, "/v1/leases", scope::leases, acquire, acquire_lease).long_waiting = true;
    add_api(post, "/v1/leases/cancel", scope::leases, write, cancel_acquisition);
    const auto add_of_lease = [&](http::method verb, const char* path, const http::answer_options& options,
                                  endpoint<lease_services> handle) {
        add_api(verb, path, scope::leases, options, handle).uses_lease = true;
    };
    add_of_lease(post, "/v1/leases/{lease_id}/renew", write, renew_lease);
    add_of_lease(get, "/v1/leases/{lease_id}", watchable, show_lease);
    add_of_lease(del, "/v1/leases/{lease_id}", write_with_query, release_lease);
    add_api(get, "/v1/leases", scope::history, query, list_leases);
    add_api(del, "/v1/resources/{resource}/lease", scope::operate, write, revoke_lease);
    add_api(post, "/v1/resources/{resource}/fence", scope::operate, write, repair_fence);
    add_api(get, "/v1/resources/{resource}", scope::history, query, show_resource);
    // The same with the resource in the query, for proxies that decode %2F.
    add_api(del, "/v1/resource/lease", scope::operate, write_with_query, revoke_lease);
    add_api(post, "/v1/resource/fence", scope::operate, write_with_query, repair_fence);
    add_api(get, "/v1/resource", scope::history, query, show_resource);

    add_api(post, "/v1/writes", scope::writes, write, apply_write).long_waiting = true;
    const auto add_rows = [&](http::method verb, const std::string& path, const http::answer_options& options,
                              endpoint<write_services> handle) {
        add_api(verb, path, scope::writes, options, handle).complete_failure = with_postgrest_code;
    };
    add_rows(get, "/rest/v1/", openapi, describe_tables);
    for (const std::string base : {"/v1/tables/", "/rest/v1/"}) {
        add_rows(get, base + "{table}", read_rows, read_table);
        add_rows(post, base + "{table}", insert, write_table);
        for (const auto verb : {patch, del})
            add_rows(verb, base + "{table}", change, write_table);
    }
    for (const std::string base : {"/v1/rpc/", "/rest/v1/rpc/"}) {
        add_rows(get, base + "{function}", read_rows, read_function);
        add_rows(post, base + "{function}", change, call_function);
    }

    add_api(get, "/v1/history", scope::history, history, show_history);
    add_api(get, "/v1/changes", scope::history, history, show_changes);
    add_api(get, "/v1/history/digests", scope::history, digests, show_digests);
    add_api(get, "/v1/history/summary", scope::history, query, summarize_history);
    add_api(get, "/v1/history/stream", scope::history, stream, follow_history);

    add_negotiated(get, "/v1/nodes", scope::operate, as_json, show_nodes);
    add_negotiated(get, "/v1/guard", scope::operate, as_json, show_guard);
    http::route& rights = add(get, "/v1/rights", show_rights);
    rights.about_caller = true;
    rights.own_cell = cell;
    rights.options = as_json;
    add(get, "/healthz", show_health).is_probe = true;
    const auto add_readiness = [&](const char* path, endpoint<state_services> handle) {
        http::route& made = add(get, path, handle);
        made.own_cell = cell;
        made.is_readiness = true;
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
