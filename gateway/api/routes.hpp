#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>
#include <gateway/http/routing/dispatcher.hpp>

#include <string_view>
#include <vector>

// The endpoints of the HTTP contract, which gateway/api/service/openapi.json describes.

namespace fencegate::api {

/// Returns all routes of the gateway. They refer to what `services` refers to.
std::vector<http::route> routes(const gateway_services& services);

// Leases

/// POST /v1/leases; with `Accept: text/event-stream` a kept lease (lease_responses.hpp).
///
/// Cancel: leaves neither a place in the queue nor a lease, also if the answer could not be delivered.
http::awaitable_response acquire_lease(const lease_services& services, http::request r);

/// POST /v1/leases/cancel: ends the wait of the request with the same Idempotency-Key, and releases what it was
/// granted.
http::awaitable_response cancel_acquisition(const lease_services& services, http::request r);

/// POST /v1/leases/{lease_id}/renew
http::awaitable_response renew_lease(const lease_services& services, http::request r);

/// GET /v1/leases/{lease_id}
http::awaitable_response show_lease(const lease_services& services, http::request r);

/// DELETE /v1/leases/{lease_id}; with ?seal=true it raises the fence above the token first.
http::awaitable_response release_lease(const lease_services& services, http::request r);

/// GET /v1/leases: the live leases as the nodes report them, in order of the resources' names.
http::awaitable_response list_leases(const lease_services& services, http::request r);

/// DELETE /v1/resources/{resource}/lease: an operator revokes the lease. It raises the fence above the token first, so
/// that the holder, who does not know of the revocation, can write no more.
http::awaitable_response revoke_lease(const lease_services& services, http::request r);

/// POST /v1/resources/{resource}/fence: an operator sets the fence. This is the only way to lower it.
http::awaitable_response repair_fence(const lease_services& services, http::request r);

// Writes, tables and functions

/// POST /v1/writes: a guarded write. Cancel: see execute_write.
http::awaitable_response apply_write(const write_services& services, http::request r);

/// GET /rest/v1/: describes the exposed tables and functions that the caller may use, as OpenAPI.
http::awaitable_response describe_tables(const write_services& services, http::request r);

/// GET /v1/tables/{table}: rows in the form that Accept asks for; with a lease or a bare token a fenced read.
/// Content-Range says which rows these are and, with Prefer: count, of how many (then 206 if they are not all).
http::awaitable_response read_table(const write_services& services, http::request r);

/// POST, PATCH and DELETE /v1/tables/{table}: a guarded write of one operation. 201, or 200 with rows and 204 without.
/// It is undone if it affects another number of rows than Accept or Prefer allows.
http::awaitable_response write_table(const write_services& services, http::request r);

/// POST /v1/rpc/{function}: the arguments by name in a JSON object, or no body. With a lease or a bare token it is a
/// guarded write; without, a plain read of a function that is declared stable or immutable. Answers with the function's
/// value as JSON, or 204.
http::awaitable_response call_function(const write_services& services, http::request r);

/// GET /v1/rpc/{function}?argument=text: a read of a function that is declared stable or immutable; with a lease or a
/// bare token a fenced read.
http::awaitable_response read_function(const write_services& services, http::request r);

// History

/// GET /v1/history: one page, or all events as application/x-ndjson or text/csv.
http::awaitable_response show_history(const history_services& services, http::request r);

/// GET /v1/changes: the rows that changed, in the same forms.
http::awaitable_response show_changes(const history_services& services, http::request r);

/// GET /v1/history/digests: one page, or all as application/x-ndjson.
http::awaitable_response show_digests(const history_services& services, http::request r);

/// GET /v1/history/summary
http::awaitable_response summarize_history(const history_services& services, http::request r);

/// GET /v1/history/stream: new events in the order of id, each once. `Last-Event-ID` resumes after an id, at any
/// gateway.
http::awaitable_response follow_history(const history_services& services, http::request r);

/// GET /v1/resources/{resource}: the fence, the live lease, counts by event and the last events; with
/// `?fencing_token=N` the timeline of one token's lease.
http::awaitable_response show_resource(const history_services& services, http::request r);

// The state of the gateway, its nodes and the guard

/// GET /v1/nodes: every Redis node as this gateway sees it.
http::awaitable_response show_nodes(const state_services& services, http::request r);

/// GET /v1/guard: the state of the guard, as PostgreSQL described it when this gateway last asked.
///
/// Errors: errc::storage_unavailable before the first answer.
http::awaitable_response show_guard(const state_services& services, http::request r);

/// GET /v1/rights: what the caller may do, so that a client asks for nothing that it would be denied. Who sends no
/// credential learns whether one is needed.
http::awaitable_response show_rights(const state_services& services, http::request r);

/// GET /healthz: 200 while the process runs, whatever the state of Redis and PostgreSQL.
http::awaitable_response show_health(const state_services& services, http::request r);

/// GET /readyz: 200 if leases can be granted and writes applied.
///
/// Errors: errc::no_quorum with the nodes · errc::storage_unavailable · errc::shutting_down.
http::awaitable_response show_readiness(const state_services& services, http::request r);

/// GET /readyz/leases: 200 if leases can be granted. PostgreSQL may be down, until the events of leases that wait for
/// it fill their buffer (audit.buffer_max).
///
/// Errors: errc::no_quorum with the nodes · errc::storage_unavailable if that buffer is nearly full and new leases are
///         refused (audit.on_full) · errc::shutting_down.
http::awaitable_response show_lease_readiness(const state_services& services, http::request r);

/// GET /readyz/writes: 200 if PostgreSQL accepts writes of callers that have a lease. All Redis nodes may be down.
///
/// Errors: errc::storage_unavailable · errc::shutting_down.
http::awaitable_response show_write_readiness(const state_services& services, http::request r);

/// GET /metrics: the metrics for Prometheus. They name no resource, owner or principal, so no API key is needed.
http::awaitable_response show_metrics(const state_services& services, http::request r);

// Documents

/// Returns gateway/api/service/openapi.json, which is embedded at build time.
std::string_view openapi_document();

/// GET /openapi.json
http::awaitable_response show_openapi(const state_services& services, http::request r);

/// GET /console: the page of the web console. Only the page itself reads the query.
http::awaitable_response show_console(const state_services& services, http::request r);

/// GET /console/{file}: its style sheet and scripts, which are embedded in the binary. The scripts fetch the data with
/// the viewer's API key.
http::awaitable_response show_console_file(const state_services& services, http::request r);

/// GET /problems/{slug}: a page that explains an error.
http::awaitable_response show_problem(const state_services& services, http::request r);

}  // namespace fencegate::api
