#pragma once

#include <gateway/api/services.hpp>
#include <gateway/api/writes/carry_out_write.hpp>
#include <gateway/http/message.hpp>

#include <string>

namespace fencegate::api {

/// POST /v1/writes. Cancel: none; a write that was begun runs to its end.
boost::asio::awaitable<http::response> apply_write(services with, http::request r);

/// The body of a 200. The JSON of rows and values is spliced in as PostgreSQL made it.
std::string render_write(const write_report& report);

}  // namespace fencegate::api
