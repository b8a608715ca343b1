#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// GET /v1/history/stream: new events in the order of id, each once. `Last-Event-ID` resumes after an id, at any
/// gateway.
http::awaitable_response follow_history(const gateway_services& services, http::request r);

}  // namespace fencegate::api
