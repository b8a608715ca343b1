#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>
#include <gateway/metrics/guard_watch.hpp>
#include <gateway/metrics/leak_watch.hpp>

#include <lockcore/node_status.hpp>

#include <optional>
#include <string>
#include <vector>

namespace fencegate::api {

/// GET /v1/nodes: every Redis node as this gateway sees it.
boost::asio::awaitable<http::response> show_nodes(services with, http::request r);

/// The word of docs/http-api.md. A node that is just being identified has not answered yet as far as callers are
/// concerned: `unreachable`; its detail says more.
const char* state_word(lockcore::node_state state);

/// `leaks`, `guard`: what the latest search found and what PostgreSQL last said; nothing before the first.
std::string render_nodes(const std::vector<lockcore::node_status>& nodes,
                         const std::optional<metrics::leak_watch::finding>& leaks,
                         const std::optional<metrics::guard_watch::finding>& guard);

}  // namespace fencegate::api
