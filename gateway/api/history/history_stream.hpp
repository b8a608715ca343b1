#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// GET /v1/history/stream: new events as they land, in the order of id, each once; `Last-Event-ID` resumes behind an
/// id, at any gateway.
boost::asio::awaitable<http::response> follow_history(services with, http::request r);

}  // namespace fencegate::api
