#pragma once

#include <gateway/api/services.hpp>
#include <gateway/domain/table_read.hpp>
#include <gateway/http/message.hpp>

#include <optional>

namespace fencegate::api {

/// GET /v1/tables/{table}: rows as a JSON array, fenced where a lease or a bare token comes with it. Content-Range says
/// which rows these are, and of how many where the caller wanted them counted (then 206 if they are not all).
boost::asio::awaitable<http::response> read_table(services with, http::request r);

/// POST, PATCH and DELETE /v1/tables/{table}: a guarded write of one operation. 201, or 200 with rows and 204 without.
boost::asio::awaitable<http::response> write_table(services with, http::request r);

/// The fence that a read has to raise: none where the request brings neither lease nor token. Errors: as open_fencing.
result<std::optional<read_fence>> fence_of_read(services with, const http::request& r);

/// `0-9/42`, `*/*`: where rows stand among all.
std::string content_range(std::int64_t offset, std::int64_t rows, std::optional<std::int64_t> total);

}  // namespace fencegate::api
