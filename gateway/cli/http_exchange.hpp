#pragma once

#include <gateway/cli/curl_transfer.hpp>
#include <gateway/cli/event_reader.hpp>
#include <gateway/cli/gateway_address.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
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
    std::string type;  ///< Content-Type without parameters.
    std::string body;  ///< Empty for an event stream.

    bool is_success() const { return status >= 200 && status < 300; }
    bool is_event_stream() const { return is_success() && type == "text/event-stream"; }
};

/// Sends one request to a gateway on a connection of its own and reads the response. Uses the proxy of the environment
/// (`http_proxy`, `https_proxy`, `all_proxy`, `no_proxy`) unless the gateway is on this machine. Over https the
/// certificate must be valid for the host.
class http_exchange {
  public:
    http_exchange(boost::asio::io_context& io, gateway_address address, tls_identity identity);
    ~http_exchange();
    http_exchange(const http_exchange&) = delete;
    http_exchange& operator=(const http_exchange&) = delete;

    /// Sends the request; to be called once.
    ///
    /// Out:     the response; for an event stream only its header.
    /// Errors:  throws gateway_unreachable.
    /// Timeout: `timeout`, from the name look-up to the end of the response.
    /// Limits:  responses of 64 MiB. Programs started meanwhile do not inherit the connection.
    boost::asio::awaitable<http_response> send(http_request request, std::chrono::milliseconds timeout);

    /// Sends the request and calls `handle_piece` with each piece of the body of a 2xx response as it arrives, however
    /// long the body is. To be called once.
    ///
    /// Out:     the response, without that body.
    /// Errors:  throws gateway_unreachable, also when the body is incomplete.
    /// Timeout: `timeout`, from one piece to the next.
    boost::asio::awaitable<http_response> download(http_request request, std::chrono::milliseconds timeout,
                                                   std::function<void(std::string_view)> handle_piece);

    /// Waits for the next event of the stream.
    ///
    /// Out:     empty when the stream ended, the connection broke, or nothing was received for `silence_max`.
    /// Errors:  throws std::length_error, see event_reader.
    /// Timeout: `silence_max`; 0 waits without limit.
    boost::asio::awaitable<std::optional<stream_event>> next_event(std::chrono::milliseconds silence_max = {});

    /// Returns the id from which the stream can be resumed; see event_reader.
    const std::string& last_event_id() const { return reader_.last_id(); }

  private:
    static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self);
    static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self);

    void prepare(const http_request& request, std::chrono::milliseconds timeout);
    void prepare_tls();
    std::size_t append_body(std::string_view piece);
    [[noreturn]] void throw_transfer_error() const;
    [[noreturn]] void throw_timeout() const;

    gateway_address address_;
    tls_identity identity_;
    std::shared_ptr<curl_transfer> transfer_;
    std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers_{nullptr, &curl_slist_free_all};
    http_response response_;
    std::function<void(std::string_view)> handle_piece_;  ///< Of download.
    bool has_head_ = false;
    bool progressing_ = false;  ///< A piece has arrived.
    bool paused_ = false;       ///< The transfer waits until next_event has returned the received events.
    event_reader reader_;
    std::deque<stream_event> events_;
    std::exception_ptr fault_;  ///< Thrown while the body was read.
};

}  // namespace fencegate::cli
