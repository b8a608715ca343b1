#pragma once

#include <gateway/api/services.hpp>
#include <gateway/api/writes/guarded_write.hpp>
#include <gateway/http/message.hpp>

#include <string>

namespace fencegate::api {

/// POST /v1/writes. Cancel: see execute_write.
http::awaitable_response apply_write(const gateway_services& services, http::request r);

/// Returns the body of a 200, with the JSON of rows and values as PostgreSQL made it.
std::string render_write(const write_report& report);

}  // namespace fencegate::api
