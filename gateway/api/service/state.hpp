#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>
#include <gateway/metrics/watches.hpp>

#include <lockcore/nodes.hpp>

#include <optional>
#include <string>
#include <vector>

namespace fencegate::api {

/// GET /v1/nodes: every Redis node as this gateway sees it.
http::awaitable_response show_nodes(const state_services& services, http::request r);

/// Returns the name that the HTTP contract has for a state. It has none for a node that is connected and not identified
/// yet: that is `unreachable`, and its detail says more.
const char* node_state_name(lockcore::node_state state);

/// Returns the JSON of GET /v1/nodes.
///
/// In: `leaks`: the latest search for leaked leases; empty before the first. `guard`: the latest state of the guard;
///     empty before the first. `key_ids`: of the keys whose lease_ids this gateway accepts, first the one that signs.
///     `cell`: that of this gateway.
std::string render_nodes(const std::vector<lockcore::node_status>& nodes,
                         const std::optional<metrics::leak_watch::finding>& leaks,
                         const std::optional<metrics::guard_watch::finding>& guard,
                         const std::vector<std::string>& key_ids, lockcore::cell_id cell);

/// GET /v1/guard: the state of the guard, as PostgreSQL described it when this gateway last asked.
///
/// Errors: errc::storage_unavailable before the first answer.
http::awaitable_response show_guard(const state_services& services, http::request r);

/// Returns the JSON of GET /v1/guard.
std::string render_guard_state(const metrics::guard_watch::finding& found);

/// GET /healthz: 200 while the process runs, whatever the state of Redis and PostgreSQL.
http::awaitable_response show_health(const state_services& services, http::request r);

/// GET /readyz: 200 if leases can be granted and writes applied.
///
/// Errors: errc::no_quorum with the nodes · errc::storage_unavailable · errc::shutting_down.
http::awaitable_response show_readiness(const state_services& services, http::request r);

/// GET /readyz/leases: 200 if leases can be granted. PostgreSQL may be down, until the events of leases that wait for it
/// fill their buffer (audit.buffer_max).
///
/// Errors: errc::no_quorum with the nodes · errc::storage_unavailable if that buffer is nearly full and new leases are
///         refused (audit.on_full) · errc::shutting_down.
http::awaitable_response show_lease_readiness(const state_services& services, http::request r);

/// GET /readyz/writes: 200 if PostgreSQL accepts writes of callers that have a lease. All Redis nodes may be down.
///
/// Errors: errc::storage_unavailable · errc::shutting_down.
http::awaitable_response show_write_readiness(const state_services& services, http::request r);

/// GET /metrics: the metrics for Prometheus. They name no resource, owner or principal, so no API key is needed.
http::awaitable_response show_metrics(const state_services& services, http::request r);

}  // namespace fencegate::api
