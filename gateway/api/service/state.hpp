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

/// Returns the name of a state in docs/http-api.md. A node that is being identified counts as `unreachable`; its detail
/// says more.
const char* node_state_name(lockcore::node_state state);

/// Returns the JSON of GET /v1/nodes.
///
/// In: `leaks` is the result of the latest search, `guard` the latest check of PostgreSQL; empty before the first.
///     `key_ids` are those of the keys whose lease_ids count, first that of the key that signs. `cell` is that of
///     this gateway.
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

/// GET /healthz: answers that the process runs. Does not check Redis and PostgreSQL.
http::awaitable_response show_health(const state_services& services, http::request r);

/// GET /readyz: answers whether leases can be granted and writes applied.
///
/// Errors: errc::no_quorum with the nodes · errc::storage_unavailable · errc::shutting_down.
http::awaitable_response show_readiness(const state_services& services, http::request r);

/// GET /readyz/leases: answers whether leases can be granted. That needs no PostgreSQL while the buffer of lease events
/// has space.
///
/// Errors: errc::no_quorum with the nodes · errc::storage_unavailable if the buffer is full · errc::shutting_down.
http::awaitable_response show_lease_readiness(const state_services& services, http::request r);

/// GET /readyz/writes: answers whether PostgreSQL accepts writes under existing leases. That needs no Redis node.
///
/// Errors: errc::storage_unavailable · errc::shutting_down.
http::awaitable_response show_write_readiness(const state_services& services, http::request r);

/// GET /metrics: the metrics for Prometheus. They name no resource, owner or principal, so no API key is needed.
http::awaitable_response show_metrics(const state_services& services, http::request r);

}  // namespace fencegate::api
