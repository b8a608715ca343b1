#pragma once

#include <gateway/http/message.hpp>

#include <chrono>
#include <string_view>

namespace fencegate::http {

/// Stands for an answer that nobody was there to get (nginx's number; it is never sent).
inline constexpr unsigned status_of_hung_up = 499;

/// What became of a request. Never the path (it may hold a lease_id), the body or the key.
struct served_request {
    method verb = method::other;
    std::string_view route_path;  ///< The route's template; "-" where there is none. Lives as long as the routes.
    std::string_view principal;
    std::string_view request_id;
    std::string_view problem;  ///< The slug of the problem document that was the answer; empty for none.
    unsigned status = 0;       ///< As sent, or status_of_hung_up.
    std::chrono::steady_clock::duration time{};  ///< To the answer's first byte; of a stream too.
};

/// Told of each request that was answered, on the thread that did it.
class request_observer {
  public:
    virtual ~request_observer() = default;
    virtual void on_served(const served_request& what) noexcept = 0;
};

}  // namespace fencegate::http
