#include <gateway/api/service/openapi.hpp>

#include <gateway/http/codec/json_io.hpp>

#include <gateway/api/service/openapi_json.hpp>

namespace fencegate::api {

std::string_view openapi_document() {
    return embedded::file("openapi.json");
}

boost::asio::awaitable<http::response> show_openapi(gateway_services, http::request) {
    co_return http::json_response(std::string(openapi_document()));
}

}  // namespace fencegate::api
