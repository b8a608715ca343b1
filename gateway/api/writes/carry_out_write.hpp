#pragma once

#include <gateway/api/services.hpp>
#include <gateway/api/writes/execute_write.hpp>
#include <gateway/http/message.hpp>

#include <functional>

namespace fencegate::api {

/// The answer to a write that was done. Must not wait for anything.
using write_renderer = std::function<http::response(const write_report&)>;

/// Does a guarded write from the lease to the answer: opens or takes the lease, writes, releases the lease, and has
/// `render` tell of it; problem documents for the rest, with the write_id of a write that PostgreSQL has seen.
///
/// In:     `r` the request that it came with: who asks, until when (beside what it may wait for a lease), and what the
///         idempotency key stands for.
/// Out, Cancel: see execute_write.
boost::asio::awaitable<http::response> carry_out_write(services with, write_call call, http::request r,
                                                       write_renderer render);

}  // namespace fencegate::api
