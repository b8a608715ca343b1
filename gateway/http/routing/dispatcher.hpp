#pragma once

#include <gateway/http/message.hpp>
#include <gateway/http/routing/auth.hpp>
#include <gateway/http/routing/origin_rules.hpp>
#include <gateway/http/routing/router.hpp>

#include <chrono>
#include <string_view>

namespace fencegate::http {

/// Decides what becomes of a request: which handler has it, or which answer it gets without one. No sockets, no
/// waiting.
///
/// Threads: not changed after construction, so safe from any thread.
class dispatcher {
  public:
    dispatcher(std::vector<route> routes, const std::vector<api_key>& keys, const http_config& cfg);

    /// What a request says of who sends it and whom it is for.
    struct sender {
        std::string_view authorization;
        std::string_view x_api_key;
        std::string_view host;           ///< As request_parser::host.
        std::string_view local_address;  ///< Where the connection arrived.
    };
    struct plan {
        const route* target = nullptr;  ///< The route whose handler is to be called; null: `answer` is final.
        response answer;
        std::string_view route_path = "-";  ///< The template, for the log: the path itself may hold a lease_id.
        std::string_view principal = "-";
    };

    /// Completes `r`: request_id, trace_id, path_parameters, principal, scopes, deadline.
    plan prepare(request& r, const sender& from, std::chrono::steady_clock::time_point now) const;

  private:
    router router_;
    authenticator authenticator_;
    origin_rules origin_rules_;
    std::chrono::milliseconds request_timeout_;
};

/// X-Request-Id as sent, if it is 1 to 128 visible ASCII characters; a new one otherwise.
std::string request_id_of(const request& r);

/// The trace-id of a W3C traceparent; empty if it is not valid.
std::string_view trace_id_of(std::string_view traceparent);

}  // namespace fencegate::http
