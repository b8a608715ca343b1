#pragma once

#include <gateway/api/services.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/http/message.hpp>

#include <string>
#include <string_view>

namespace fencegate::api {

/// POST /v1/writes. Cancel: none; a write that was begun runs to its end.
boost::asio::awaitable<http::response> apply_write(services with, http::request r);

/// The body of a 200. The JSON of rows and values is spliced in as PostgreSQL made it.
std::string render_write(std::string_view write_id, lockcore::fencing_token token, const write_outcome& outcome);

}  // namespace fencegate::api
