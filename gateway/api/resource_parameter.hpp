#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/http/codec/query.hpp>
#include <gateway/http/message.hpp>

#include <lockcore/types.hpp>

namespace fencegate::api {

/// Returns the resource that a request is about: that of the path at /v1/resources/{resource}…, the parameter `resource` of
/// the query at /v1/resource….
///
/// Errors: errc::invalid_request.
result<lockcore::resource_name> read_resource(const http::request& r, const http::query_reader& query);

}  // namespace fencegate::api
