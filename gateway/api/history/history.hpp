#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// GET /v1/history: a page, or all of it as application/x-ndjson or text/csv.
boost::asio::awaitable<http::response> show_history(services with, http::request r);

/// GET /v1/history/summary
boost::asio::awaitable<http::response> summarize_history(services with, http::request r);

}  // namespace fencegate::api
