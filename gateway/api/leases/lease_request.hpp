#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/message.hpp>

#include <lockcore/config.hpp>
#include <lockcore/lease.hpp>

#include <chrono>
#include <optional>

namespace fencegate::api {

/// The body of POST /v1/leases.
struct lease_request {
    lockcore::acquire_request acquire;     ///< `holder.principal` and `trace_id` from the request.
    std::chrono::milliseconds max_hold{};  ///< For a kept lease; lease.max_hold_ms if the request has none.
    bool fence_on_grant = false;           ///< Whether to raise the fence before the answer.
};

/// Reads the fields of a lease request: resource or resources, ttl_ms, wait_ms, owner. The principal is that of `r`.
lockcore::acquire_request read_wanted_lease(const http::object_reader& body, const http::request& r,
                                            const lockcore::config& limits, http::fault_list& faults);

/// Parses the body of POST /v1/leases.
///
/// Errors: errc::invalid_request with every fault · errc::unsupported_media_type.
result<lease_request> parse_lease_request(const http::request& r, const lockcore::config& limits);

/// Parses the body of POST /v1/leases/cancel: that of the request that it cancels, whose Idempotency-Key is required.
///
/// Errors: those of parse_lease_request.
result<lockcore::acquire_request> parse_cancellation(const http::request& r, const lockcore::config& limits);

/// Returns the ttl of POST …/renew; lease.default_ttl_ms if the body or the field is missing.
///
/// Errors: those of parse_lease_request.
result<std::chrono::milliseconds> parse_renewal(const http::request& r, const lockcore::config& limits);

}  // namespace fencegate::api
