#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// POST /v1/rpc/{function}: arguments by name in a JSON object, or no body. With a lease or a bare token a guarded
/// write; without, a plain read of a function that is declared stable or immutable. The function's value as JSON, or
/// 204.
boost::asio::awaitable<http::response> call_function(services with, http::request r);

/// GET /v1/rpc/{function}?argument=text: a read of a function that is declared stable or immutable, fenced where a
/// lease or a bare token comes with it.
boost::asio::awaitable<http::response> read_function(services with, http::request r);

}  // namespace fencegate::api
