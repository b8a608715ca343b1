#pragma once

#include <gateway/cli/http_transfer.hpp>
#include <gateway/cli/lock_options.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace fencegate::cli {

/// Sends a request and returns the response; throws gateway_unreachable.
using gateway_call = std::function<boost::asio::awaitable<http_response>(http_request)>;

/// Returns the resource whose fence records the starts of a scheduled command: `jobs/nightly@tick`.
std::string tick_key(const std::string& resource);

/// Returns whether two starts belong to the same tick of a schedule: they are less than half of its period apart.
bool is_same_tick(std::chrono::system_clock::time_point previous, std::chrono::system_clock::time_point now,
                  std::chrono::milliseconds every);

/// Records that the command of a schedule is started now, unless its last start belongs to the same tick. The starts
/// are the events fence_raised of tick_key(resource), which PostgreSQL stores with its own time before the gateway
/// answers; no clock of a caller counts. To be called while the caller holds the lease on `resource`, which was granted
/// with `fence_on_grant`; a caller that lost it meanwhile finds the record of the next holder, or is found by it.
///
/// In:     `token` the fencing token of the lease.
/// Out:    empty when this call has recorded the start: exactly one caller may run the command.
/// Errors: a refusal; when it has no conflict, the start may have been recorded all the same. Throws
///         gateway_unreachable.
boost::asio::awaitable<std::optional<lock_refusal>> begin_tick(gateway_call call, std::string resource,
                                                               std::int64_t token, std::chrono::milliseconds every);

}  // namespace fencegate::cli
