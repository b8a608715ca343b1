#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// GET /v1/leases: the live leases as the nodes report them, in order of the resources' names.
http::awaitable_response list_leases(const gateway_services& services, http::request r);

/// DELETE /v1/resources/{resource}/lease: an operator revokes the lease. It raises the fence above the token first, so
/// that the holder, who does not know of the revocation, can write no more.
http::awaitable_response revoke_lease(const gateway_services& services, http::request r);

/// POST /v1/resources/{resource}/fence: an operator sets the fence. This is the only way to lower it.
http::awaitable_response repair_fence(const gateway_services& services, http::request r);

}  // namespace fencegate::api
