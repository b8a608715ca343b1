#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// GET /healthz: answers that the process runs. Does not check Redis and PostgreSQL.
http::awaitable_response show_health(const gateway_services& services, http::request r);

/// GET /readyz: answers whether leases can be granted and writes applied.
///
/// Errors: errc::no_quorum with the nodes · errc::storage_unavailable · errc::shutting_down.
http::awaitable_response show_readiness(const gateway_services& services, http::request r);

/// GET /readyz/leases: answers whether leases can be granted. That needs no PostgreSQL while the buffer of lease events
/// has space.
///
/// Errors: errc::no_quorum with the nodes · errc::storage_unavailable if the buffer is full · errc::shutting_down.
http::awaitable_response show_lease_readiness(const gateway_services& services, http::request r);

/// GET /readyz/writes: answers whether PostgreSQL accepts writes under existing leases. That needs no Redis node.
///
/// Errors: errc::storage_unavailable · errc::shutting_down.
http::awaitable_response show_write_readiness(const gateway_services& services, http::request r);

/// GET /metrics: the metrics for Prometheus. They name no resource, owner or principal, so no API key is needed.
http::awaitable_response show_metrics(const gateway_services& services, http::request r);

}  // namespace fencegate::api
