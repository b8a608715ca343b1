#pragma once

#include <gateway/config/config.hpp>
#include <gateway/domain/actor.hpp>
#include <gateway/domain/failure.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::http {

enum class method { get, post, patch, put, del, head, options, other };

/// A request after parsing and authentication. Handlers see this and no Beast type.
struct request {
    method verb = method::other;
    std::string path;          ///< As sent, without query; still percent-encoded.
    std::string query;         ///< Without '?'; still encoded.
    std::vector<std::string> path_parameters;  ///< Decoded, in the order of the route's placeholders.
    std::vector<std::pair<std::string, std::string>> headers;  ///< Names in lower case.
    std::string body;

    std::string request_id;  ///< X-Request-Id, echoed or made.
    std::string trace_id;    ///< Of traceparent, or empty.
    std::string principal;
    std::set<scope> scopes;
    std::chrono::steady_clock::time_point deadline;  ///< Made at the edge, passed down, never renewed.

    /// Empty if absent. `name` in lower case.
    std::string_view header(std::string_view name) const;
};

struct response {
    unsigned status = 200;
    std::string content_type = "application/json";
    std::string body;
    std::vector<std::pair<std::string, std::string>> headers;  ///< Beyond what the session adds (Content-Length, X-Request-Id, …).
};

using handler = std::function<boost::asio::awaitable<response>(request)>;

}  // namespace fencegate::http
