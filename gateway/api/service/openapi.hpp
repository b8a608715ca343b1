#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

#include <string_view>

namespace fencegate::api {

/// gateway/api/service/openapi.json as it was when this was built.
std::string_view openapi_document();

/// GET /openapi.json
boost::asio::awaitable<http::response> show_openapi(services with, http::request r);

}  // namespace fencegate::api
