#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// GET /v1/history: one page, or all events as application/x-ndjson or text/csv.
http::awaitable_response show_history(const gateway_services& services, http::request r);

/// GET /v1/history/summary
http::awaitable_response summarize_history(const gateway_services& services, http::request r);

}  // namespace fencegate::api
