#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// POST /v1/leases; with `Accept: text/event-stream` a kept lease (kept_lease.hpp). Cancel: nothing is left behind: no
/// place in the queue, no lease, also where the answer could not be delivered.
boost::asio::awaitable<http::response> acquire_lease(services with, http::request r);

/// POST /v1/leases/{lease_id}/renew
boost::asio::awaitable<http::response> renew_lease(services with, http::request r);

/// GET /v1/leases/{lease_id}
boost::asio::awaitable<http::response> show_lease(services with, http::request r);

/// DELETE /v1/leases/{lease_id}, with ?seal=true raising the fence past its token first.
boost::asio::awaitable<http::response> release_lease(services with, http::request r);

}  // namespace fencegate::api
