#include <gateway/api/routes.hpp>

#include <gateway/api/console.hpp>
#include <gateway/api/health.hpp>
#include <gateway/api/history.hpp>
#include <gateway/api/history_stream.hpp>
#include <gateway/api/leases.hpp>
#include <gateway/api/live_leases.hpp>
#include <gateway/api/metrics.hpp>
#include <gateway/api/nodes.hpp>
#include <gateway/api/openapi.hpp>
#include <gateway/api/problems.hpp>
#include <gateway/api/resources.hpp>
#include <gateway/api/rpc.hpp>
#include <gateway/api/tables.hpp>
#include <gateway/api/writes.hpp>

namespace fencegate::api {
namespace {

using awaitable_response = boost::asio::awaitable<http::response>;

/// A handler out of a coroutine function that takes the services and the request, both by value.
http::handler bind(services with, awaitable_response (*handle)(services, http::request)) {
    return [with, handle](http::request r) { return handle(with, std::move(r)); };
}

}  // namespace

std::vector<http::route> routes(services with) {
    using enum http::method;
    std::vector<http::route> out;
    const auto add = [&](http::method verb, const char* path, std::optional<scope> needs,
                         awaitable_response (*handle)(services, http::request), bool long_waiting = false) {
        out.push_back({verb, path, needs, bind(with, handle), long_waiting});
    };
    add(post, "/v1/leases", scope::leases, acquire_lease, true);
    add(post, "/v1/leases/{lease_id}/renew", scope::leases, renew_lease);
    add(get, "/v1/leases/{lease_id}", scope::leases, show_lease);
    add(del, "/v1/leases/{lease_id}", scope::leases, release_lease);
    add(get, "/v1/leases", scope::history, list_leases);
    add(del, "/v1/resources/{resource}/lease", scope::operate, revoke_lease);
    add(post, "/v1/resources/{resource}/fence", scope::operate, repair_fence);
    add(get, "/v1/resources/{resource}", scope::history, show_resource);
    add(post, "/v1/writes", scope::writes, apply_write, true);
    add(get, "/v1/tables/{table}", scope::writes, read_table);
    for (const auto verb : {post, patch, del})
        add(verb, "/v1/tables/{table}", scope::writes, write_table);
    add(get, "/v1/rpc/{function}", scope::writes, read_function);
    add(post, "/v1/rpc/{function}", scope::writes, call_function);
    add(get, "/v1/history", scope::history, show_history);
    add(get, "/v1/history/summary", scope::history, summarize_history);
    add(get, "/v1/history/stream", scope::history, follow_history);
    add(get, "/v1/nodes", scope::operate, show_nodes);
    add(get, "/healthz", std::nullopt, show_health);
    add(get, "/readyz", std::nullopt, show_readiness);
    add(get, "/readyz/leases", std::nullopt, show_lease_readiness);
    add(get, "/readyz/writes", std::nullopt, show_write_readiness);
    add(get, "/metrics", std::nullopt, show_metrics);
    add(get, "/openapi.json", std::nullopt, show_openapi);
    add(get, "/console", std::nullopt, show_console);
    add(get, "/console/{file}", std::nullopt, show_console_file);
    add(get, "/problems/{slug}", std::nullopt, show_problem);
    return out;
}

}  // namespace fencegate::api
