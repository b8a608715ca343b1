#pragma once

#include <gateway/cli/event_reader.hpp>
#include <gateway/cli/gateway_address.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

namespace fencegate::cli {

/// No answer: nobody listens, the connection broke, or the time was up. What it says is for people.
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

/// Whose certificates are believed.
using trust = std::shared_ptr<boost::asio::ssl::context>;

/// Those of the system's store; with a file (PEM) only those in it. Throws std::runtime_error.
trust make_trust(const std::filesystem::path& certificates);

/// One request to a gateway and its answer, on a connection of its own. Over https the certificate has to be good for
/// the host.
class wire {
  public:
    wire(boost::asio::io_context& io, gateway_address at, trust believed);
    ~wire();
    wire(const wire&) = delete;
    wire& operator=(const wire&) = delete;

    /// The answer; of a stream only its head. Throws unreachable. No program started meanwhile inherits the connection.
    boost::asio::awaitable<answer> send(request what, std::chrono::milliseconds within);

    /// The stream's next event; empty at its end, also where the connection breaks, or where nothing at all came for
    /// `silence` (0: however long).
    boost::asio::awaitable<std::optional<stream_event>> next_event(std::chrono::milliseconds silence = {});

    /// Where the stream is to be resumed; see event_reader.
    const std::string& last_event_id() const;

    /// Whether something has come that next_event has not seen.
    bool has_unread();

    /// Tells the gateway that no more is wanted; its last words can still be read.
    void finish();

  private:
    struct connection;
    std::unique_ptr<connection> connection_;
};

}  // namespace fencegate::cli
