#pragma once

#include <gateway/api/services.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/history_item.hpp>
#include <gateway/http/message.hpp>

#include <string>
#include <string_view>

namespace fencegate::api {

/// GET /v1/history
boost::asio::awaitable<http::response> show_history(services with, http::request r);

/// Errors: errc::invalid_request with every fault.
result<history_query> parse_history_query(std::string_view query);

std::string render_history(const history_page& page, bool ascending);

}  // namespace fencegate::api
