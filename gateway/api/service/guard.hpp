#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>
#include <gateway/metrics/guard_watch.hpp>

#include <string>

namespace fencegate::api {

/// GET /v1/guard: the state of the guard, as PostgreSQL described it when this gateway last asked.
///
/// Errors: errc::storage_unavailable before the first answer.
http::awaitable_response show_guard(const gateway_services& services, http::request r);

/// Returns the JSON of GET /v1/guard.
std::string render_guard_state(const metrics::guard_watch::finding& found);

}  // namespace fencegate::api
