#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// POST /v1/leases; with `Accept: text/event-stream` a kept lease (kept_lease.hpp).
///
/// Cancel: leaves neither a place in the queue nor a lease, also if the answer could not be delivered.
boost::asio::awaitable<http::response> acquire_lease(gateway_services services, http::request r);

/// POST /v1/leases/cancel: ends the wait of the request with the same Idempotency-Key, and releases what it was granted.
boost::asio::awaitable<http::response> cancel_acquisition(gateway_services services, http::request r);

/// POST /v1/leases/{lease_id}/renew
boost::asio::awaitable<http::response> renew_lease(gateway_services services, http::request r);

/// GET /v1/leases/{lease_id}
boost::asio::awaitable<http::response> show_lease(gateway_services services, http::request r);

/// DELETE /v1/leases/{lease_id}; with ?seal=true it raises the fence above the token first.
boost::asio::awaitable<http::response> release_lease(gateway_services services, http::request r);

}  // namespace fencegate::api
