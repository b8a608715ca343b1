#pragma once

#include <gateway/cli/curl_transfer.hpp>
#include <gateway/cli/event_reader.hpp>
#include <gateway/cli/gateway_address.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

namespace fencegate::cli {

/// No answer: nobody listens, the connection broke, or the time was up. The text is for people.
class unreachable : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

struct request {
    std::string method = "GET";
    std::string target;  ///< Path and query, encoded.
    std::string accept = "application/json";
    std::string api_key;            ///< Empty: none is sent.
    std::string last_event_id;      ///< Empty: none is sent.
    std::string idempotency_key{};  ///< Empty: none is sent.
    std::string body;               ///< JSON; empty: none is sent.
};

struct answer {
    unsigned status = 0;
    std::string type;  ///< Of the content, without parameters.
    std::string body;  ///< Empty where it is a stream of events.

    bool ok() const { return status >= 200 && status < 300; }
    bool streams() const { return ok() && type == "text/event-stream"; }
};

/// One request to a gateway and its answer, on a connection of its own; by a proxy where the environment names one
/// (`http_proxy`, `https_proxy`, `all_proxy`, `no_proxy`) and the gateway is not on this machine. Over https the
/// certificate has to be good for the host.
class http_exchange {
  public:
    /// `authorities`: certificates (PEM) to trust over https; empty: those of the system, or of SSL_CERT_FILE and
    /// SSL_CERT_DIR.
    http_exchange(boost::asio::io_context& io, gateway_address at, std::string authorities);
    ~http_exchange();
    http_exchange(const http_exchange&) = delete;
    http_exchange& operator=(const http_exchange&) = delete;

    /// Sends the request, once.
    ///
    /// Out:     the answer; of a stream only its head.
    /// Errors:  throws unreachable.
    /// Timeout: `within`, from the look-up of the name to the end of the answer.
    /// Limits:  answers of 64 MiB. No program started meanwhile inherits the connection.
    boost::asio::awaitable<answer> send(request what, std::chrono::milliseconds within);

    /// The stream's next event; empty at its end, also where the connection breaks, or where nothing at all came for
    /// `silence` (0: however long). Throws std::length_error, see event_reader.
    boost::asio::awaitable<std::optional<stream_event>> next_event(std::chrono::milliseconds silence = {});

    /// Where the stream is to be resumed; see event_reader.
    const std::string& last_event_id() const { return reader_.last_id(); }

    /// Whether something has come that next_event has not seen.
    bool has_unread() const { return !events_.empty() || paused_ || transfer_->has_unread(); }

    /// Tells the gateway that no more is wanted; its last words can still be read.
    void finish() { transfer_->shut_down_sending(); }

  private:
    static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self);
    static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self);

    void prepare(const request& what, std::chrono::milliseconds within);
    std::size_t take_body(std::string_view piece);
    [[noreturn]] void fail() const;
    [[noreturn]] void fail_late() const;

    gateway_address at_;
    std::string authorities_;
    std::shared_ptr<curl_transfer> transfer_;
    std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers_{nullptr, &curl_slist_free_all};
    answer answer_;
    bool has_head_ = false;
    bool paused_ = false;  ///< Until next_event has taken what came.
    event_reader reader_;
    std::deque<stream_event> events_;
    std::exception_ptr fault_;  ///< Of the answer.
};

}  // namespace fencegate::cli
