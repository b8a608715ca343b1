#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// POST /v1/rpc/{function}: the arguments by name in a JSON object, or no body. With a lease or a bare token it is a
/// guarded write; without, a plain read of a function that is declared stable or immutable. Answers with the function's
/// value as JSON, or 204.
http::awaitable_response call_function(const gateway_services& services, http::request r);

/// GET /v1/rpc/{function}?argument=text: a read of a function that is declared stable or immutable; with a lease or a
/// bare token a fenced read.
http::awaitable_response read_function(const gateway_services& services, http::request r);

}  // namespace fencegate::api
