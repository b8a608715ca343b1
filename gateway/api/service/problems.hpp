#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// GET /problems/{slug}: what an error means, for people.
boost::asio::awaitable<http::response> show_problem(services with, http::request r);

}  // namespace fencegate::api
