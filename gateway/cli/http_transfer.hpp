#pragma once

#include <gateway/cli/answers.hpp>
#include <gateway/cli/arguments.hpp>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>

namespace fencegate::cli {

/// No response: nothing listens, the connection broke, or the timeout expired. The text is for the user.
class gateway_unreachable : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// Certificates and keys for https, as texts in PEM.
struct tls_identity {
    std::string authorities;  ///< What is trusted; empty: the system's, or those of SSL_CERT_FILE and SSL_CERT_DIR.
    std::string certificate;  ///< The certificate of this caller and those that lead to an authority; empty: none.
    std::string key;          ///< The key of `certificate`.
};

struct http_request {
    std::string method = "GET";
    std::string target;  ///< Path and query, encoded.
    std::string accept = "application/json";
    std::string api_key;            ///< Empty: not sent.
    std::string cell;               ///< Fencing-Cell; empty: not sent.
    std::string last_event_id;      ///< Empty: not sent.
    std::string idempotency_key{};  ///< Empty: not sent.
    std::string body;               ///< JSON; empty: not sent.
};

struct http_response {
    unsigned status = 0;
    std::string type;             ///< Content-Type without parameters.
    std::string body;             ///< Without what was passed to a handler.
    std::string last_event_id{};  ///< From which an event stream can be resumed; see event_reader.

    bool is_success() const { return status >= 200 && status < 300; }
    bool is_event_stream() const { return is_success() && type == "text/event-stream"; }
};

/// How an answer is received.
struct transfer_options {
    /// From the name look-up to the end of the response; with `handle_piece` from one piece to the next, with
    /// `handle_event` to the header of an event stream, which then may be silent for 30 s.
    std::chrono::milliseconds timeout{};
    /// Is called with each piece of the body of a 2xx response as it arrives, however long the body is.
    std::function<void(std::string_view)> handle_piece{};
    /// Is called with each event of an event stream as it arrives, until it returns false.
    std::function<bool(const stream_event&)> handle_event{};
    std::stop_token stop{};  ///< Ends the transfer at once, also during a name look-up.
};

/// Sends one request to a gateway on a connection of its own and reads the response. Uses the proxy of the environment
/// (`http_proxy`, `https_proxy`, `all_proxy`, `no_proxy`) unless the gateway is on this machine. Over https the
/// certificate must be valid for the host. Blocks the thread.
///
/// Out:    the response; an event stream also when it broke off.
/// Errors: throws gateway_unreachable, also when the body is incomplete, std::length_error (see event_reader), and what
///         a handler throws.
/// Limits: bodies of 64 MiB without a handler. Programs started meanwhile do not inherit the connection.
http_response send_request(const gateway_address& address, const tls_identity& identity, const http_request& request,
                           const transfer_options& options);

}  // namespace fencegate::cli
