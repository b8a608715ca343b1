#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

#include <string_view>

namespace fencegate::api {

/// Returns gateway/api/service/openapi.json, which is embedded at build time.
std::string_view openapi_document();

/// GET /openapi.json
http::awaitable_response show_openapi(const gateway_services& services, http::request r);

}  // namespace fencegate::api
