#pragma once

#include <gateway/api/services.hpp>
#include <gateway/api/writes/execute_write.hpp>
#include <gateway/http/message.hpp>

#include <functional>

namespace fencegate::api {

/// Renders the answer to an applied write. Must not wait.
using write_renderer = std::function<http::response(const write_report&)>;

/// Executes a guarded write and returns the HTTP answer: opens or acquires the lease, writes, releases the lease, and
/// calls `render`. A failure becomes a problem document, with the write_id if the write was made.
///
/// In:     `r` is the request of the write: its principal, its deadline (without the wait for a lease), and the parts
///         that the fingerprint of an idempotency key covers.
/// Out:    see execute_write.
/// Cancel: see execute_write.
http::awaitable_response answer_write(const gateway_services& services, write_call call, http::request r,
                                      write_renderer render);

}  // namespace fencegate::api
