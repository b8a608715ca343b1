#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/routing/router.hpp>

#include <vector>

namespace fencegate::api {

/// Everything that this version serves. gateway/api/service/openapi.json describes the same.
std::vector<http::route> routes(services with);

}  // namespace fencegate::api
