#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// GET /v1/history: one page, or all events as application/x-ndjson or text/csv.
http::awaitable_response show_history(const history_services& services, http::request r);

/// GET /v1/history/summary
http::awaitable_response summarize_history(const history_services& services, http::request r);

/// GET /v1/history/stream: new events in the order of id, each once. `Last-Event-ID` resumes after an id, at any
/// gateway.
http::awaitable_response follow_history(const history_services& services, http::request r);

/// GET /v1/resources/{resource}: the fence, the live lease, counts by event and the last events; with
/// `?fencing_token=N` the timeline of one token's lease.
http::awaitable_response show_resource(const history_services& services, http::request r);

}  // namespace fencegate::api
