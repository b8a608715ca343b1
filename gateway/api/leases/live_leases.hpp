#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// GET /v1/leases: the live leases, as the nodes know them, in order of the resources' names.
boost::asio::awaitable<http::response> list_leases(services with, http::request r);

/// DELETE /v1/resources/{resource}/lease: an operator takes the lease away. The fence is raised past its token first,
/// so that its holder, who does not know yet, can write no more.
boost::asio::awaitable<http::response> revoke_lease(services with, http::request r);

/// POST /v1/resources/{resource}/fence: an operator sets the fence, the only way down.
boost::asio::awaitable<http::response> repair_fence(services with, http::request r);

}  // namespace fencegate::api
