#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// GET /metrics: for Prometheus. Names no resource, owner or principal, and so needs no key.
boost::asio::awaitable<http::response> show_metrics(services with, http::request r);

}  // namespace fencegate::api
