#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/routing/dispatcher.hpp>

#include <vector>

namespace fencegate::api {

/// Returns all routes of the gateway. gateway/api/service/openapi.json describes the same. The routes refer to
/// what `services` refers to.
std::vector<http::route> routes(const gateway_services& services);

}  // namespace fencegate::api
