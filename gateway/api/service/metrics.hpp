#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// GET /metrics: the metrics for Prometheus. They name no resource, owner or principal, so no API key is needed.
http::awaitable_response show_metrics(const gateway_services& services, http::request r);

}  // namespace fencegate::api
