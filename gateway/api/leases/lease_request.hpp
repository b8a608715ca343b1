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
    lockcore::acquire_request acquire;     ///< `by.principal` and `trace_id` from the request.
    std::chrono::milliseconds max_hold{};  ///< Of a kept lease; lease.max_hold_ms where none is asked for.
    bool fence_on_grant = false;  ///< A kept lease (`acquire.kept`) is one for which a stream of events is accepted.
};

/// The fields by which a lease is asked for: resource or resources, ttl_ms, wait_ms, owner. `r` says who asks.
lockcore::acquire_request read_wanted_lease(const http::object_reader& body, const http::request& r,
                                            const lockcore::config& limits, http::fault_list& faults);

/// Errors: errc::invalid_request with every fault · errc::not_acceptable · errc::unsupported_media_type.
result<lease_request> parse_lease_request(const http::request& r, const lockcore::config& limits);

/// The ttl of POST …/renew; without a body or without the field lease.default_ttl_ms. Errors: as above.
result<std::chrono::milliseconds> parse_renewal(const http::request& r, const lockcore::config& limits);

}  // namespace fencegate::api
