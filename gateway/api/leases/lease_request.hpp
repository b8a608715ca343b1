#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/message.hpp>

#include <lockcore/config.hpp>
#include <lockcore/lease.hpp>
#include <lockcore/lock_manager.hpp>
#include <lockcore/types.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::api {

/// The body of POST /v1/leases.
struct lease_request {
    lockcore::acquire_request acquire;     ///< `holder.principal` and `origin` from the request.
    std::chrono::milliseconds max_hold{};  ///< For a kept lease; lease.max_hold_ms if the request has none.
    bool any_of = false;                   ///< One of `acquire.resources` is wanted, at least two.
    bool fence_on_grant = false;           ///< Whether to raise the fence before the answer.
};

/// Reads the fields of a lease request: resource or resources, mode, shared, ttl_ms, wait_ms,
/// owner. The principal is that of `r`.
lockcore::acquire_request read_wanted_lease(const http::object_reader& body, const http::request& r,
                                            const lockcore::config& protocol, http::fault_list& faults);

/// Parses the body of POST /v1/leases.
///
/// Errors: errc::invalid_request with every fault · errc::unsupported_media_type.
result<lease_request> parse_lease_request(const http::request& r, const lockcore::config& protocol);

/// Parses the body of POST /v1/leases/cancel: that of the request that it cancels, whose Idempotency-Key is required.
///
/// Errors: those of parse_lease_request.
result<lease_request> parse_cancellation(const http::request& r, const lockcore::config& protocol);

/// Returns the ttl of POST …/renew; lease.default_ttl_ms if the body or the field is missing.
///
/// Errors: those of parse_lease_request.
result<std::chrono::milliseconds> parse_renewal(const http::request& r, const lockcore::config& protocol);

/// Parses the query of GET /v1/leases. `principal` and `until` are left to the caller.
///
/// Errors: errc::invalid_request with every fault · errc::misdirected_request for a cursor of another cell than `cell`.
result<lockcore::lease_query> parse_lease_listing(std::string_view query, lockcore::cell_id cell);

/// Returns the cursor of the page that begins after a name.
std::string make_listing_cursor(const std::string& after, lockcore::cell_id cell);

/// Returns the resource that a request is about: that of the path at /v1/resources/{resource}…, the parameter
/// `resource` of the query at /v1/resource….
///
/// Errors: errc::invalid_request.
result<lockcore::resource_name> read_resource(const http::request& r, const http::query_reader& query);

enum class operator_request {
    revoke_lease,  ///< DELETE …/lease; the token is `expected_token`.
    repair_fence,  ///< POST …/fence; the token is `last_fencing_token`, which is required.
};

/// An operator's request about one resource.
struct operator_order {
    lockcore::resource_name resource;
    std::string reason;  ///< For the history.
    std::optional<std::uint64_t> token;
};

/// Reads the resource (read_resource), and of the body the reason and the token. The caller needs the scope `operate`
/// for the resource.
///
/// Errors: the fault of the resource, errc::forbidden, the first fault of the body's JSON, or all faults of its fields.
result<operator_order> parse_operator_order(const http::request& r, operator_request kind);

}  // namespace fencegate::api
