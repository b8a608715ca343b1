#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/http/message.hpp>

#include <lockcore/cell.hpp>
#include <lockcore/lock_manager.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::api {

/// Parses the query of GET /v1/leases. `principal` and `until` are left to the caller.
///
/// Errors: errc::invalid_request with every fault · errc::misdirected_request for a cursor of another cell than `cell`.
result<lockcore::lease_query> parse_lease_listing(std::string_view query, lockcore::cell_id cell);

/// Returns the cursor of the page that begins after a name.
std::string make_listing_cursor(const std::string& after, lockcore::cell_id cell);

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

/// Reads the resource (read_resource), and of the body the reason and the token. The caller needs the scope `operate` for
/// the resource.
///
/// Errors: the fault of the resource, errc::forbidden, the first fault of the body's JSON, or all faults of its fields.
result<operator_order> parse_operator_order(const http::request& r, operator_request kind);

}  // namespace fencegate::api
