#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// GET /healthz: the process answers. Says nothing about Redis and PostgreSQL.
boost::asio::awaitable<http::response> show_health(services with, http::request r);

/// GET /readyz: whether leases can be given and writes be done. Errors: errc::no_quorum with the nodes ·
/// errc::storage_unavailable.
boost::asio::awaitable<http::response> show_readiness(services with, http::request r);

/// GET /readyz/leases: whether leases can be given, which PostgreSQL is not needed for while its history may wait.
/// Errors: errc::no_quorum with the nodes · errc::storage_unavailable where no more lease events may wait.
boost::asio::awaitable<http::response> show_lease_readiness(services with, http::request r);

/// GET /readyz/writes: whether PostgreSQL takes writes under leases that are held already, which no node is needed for.
/// Errors: errc::storage_unavailable.
boost::asio::awaitable<http::response> show_write_readiness(services with, http::request r);

}  // namespace fencegate::api
