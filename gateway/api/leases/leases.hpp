#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// POST /v1/leases; with `Accept: text/event-stream` a kept lease (lease_streams.hpp).
///
/// Cancel: leaves neither a place in the queue nor a lease, also if the answer could not be delivered.
http::awaitable_response acquire_lease(const lease_services& services, http::request r);

/// POST /v1/leases/cancel: ends the wait of the request with the same Idempotency-Key, and releases what it was
/// granted.
http::awaitable_response cancel_acquisition(const lease_services& services, http::request r);

/// POST /v1/leases/{lease_id}/renew
http::awaitable_response renew_lease(const lease_services& services, http::request r);

/// GET /v1/leases/{lease_id}
http::awaitable_response show_lease(const lease_services& services, http::request r);

/// DELETE /v1/leases/{lease_id}; with ?seal=true it raises the fence above the token first.
http::awaitable_response release_lease(const lease_services& services, http::request r);

/// GET /v1/leases: the live leases as the nodes report them, in order of the resources' names.
http::awaitable_response list_leases(const lease_services& services, http::request r);

/// DELETE /v1/resources/{resource}/lease: an operator revokes the lease. It raises the fence above the token first, so
/// that the holder, who does not know of the revocation, can write no more.
http::awaitable_response revoke_lease(const lease_services& services, http::request r);

/// POST /v1/resources/{resource}/fence: an operator sets the fence. This is the only way to lower it.
http::awaitable_response repair_fence(const lease_services& services, http::request r);

}  // namespace fencegate::api
