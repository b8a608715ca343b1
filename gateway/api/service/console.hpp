#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// GET /console: the page of the web console, whatever its query (the page reads that itself).
boost::asio::awaitable<http::response> show_console(services with, http::request r);

/// GET /console/{file}: its style sheet and scripts. All of it is in the binary; what it shows it fetches with the
/// viewer's API key.
boost::asio::awaitable<http::response> show_console_file(services with, http::request r);

}  // namespace fencegate::api
