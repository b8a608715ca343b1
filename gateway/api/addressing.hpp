#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/http/codec/query.hpp>
#include <gateway/http/message.hpp>

#include <lockcore/types.hpp>

#include <string_view>

namespace fencegate::api {

/// Returns the failure of a request that names something of another cell; `subject`: what was sent, as "The cursor".
failure other_cell_failure(std::string_view subject, lockcore::cell_id named, lockcore::cell_id own);

/// Checks the header Fencing-Cell, by which a caller names the cell for which a request is.
///
/// Errors: errc::misdirected_request (another cell) · errc::invalid_request.
result<void> check_cell(const http::request& r, lockcore::cell_id own);

/// Returns the resource that a request is about: that of the path at /v1/resources/{resource}…, the parameter `resource` of
/// the query at /v1/resource….
///
/// Errors: errc::invalid_request.
result<lockcore::resource_name> read_resource(const http::request& r, const http::query_reader& query);

}  // namespace fencegate::api
