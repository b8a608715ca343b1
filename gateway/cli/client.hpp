#pragma once

#include <gateway/cli/http_transfer.hpp>

#include <boost/json/value.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::cli {

/// The options of every command that calls a gateway.
struct gateway_options {
    std::string url = "http://127.0.0.1:8080";  ///< Of one gateway, or of several, separated by commas.
    std::string url_source = "--url";           ///< The option or environment variable with the URL, for errors.
    std::filesystem::path api_key_file;         ///< Empty: the environment variable FENCEGATE_API_KEY.
    std::filesystem::path cacert;               ///< Empty: the certificates of the system.
    std::filesystem::path cert;                 ///< The certificate of this caller; empty: none.
    std::filesystem::path key;                  ///< The key of `cert`; empty: it is in the file `cert`.
    std::chrono::milliseconds timeout{10'000};
    std::optional<unsigned> cell;  ///< The cell for which all requests are; empty: not sent.
};

/// Wrong arguments; the text is for the user who gave them.
class usage_error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// The gateway answered with an error, or with a body that is not JSON.
class gateway_refusal : public std::runtime_error {
  public:
    explicit gateway_refusal(const http_response& response);
    unsigned status;
};

/// Calls gateways, any of which serves any call: the first one, and after a failure of it the next one, and so on.
/// Calls block their thread.
///
/// Threads: thread-safe.
class client {
  public:
    /// Throws usage_error.
    explicit client(const gateway_options& options);

    /// Sends the request, after a failure also to the other gateways, and returns the response, whatever its status.
    /// Throws as send_request.
    http_response call(const http_request& request) const;
    /// As above, with another time for each attempt.
    http_response call(http_request request, transfer_options options) const;
    /// Sends the request to the present gateway alone. If that fails, the next call begins with the next gateway.
    http_response call_once(http_request request, const transfer_options& options) const;

    /// Calls `handle_piece` with each piece of a 2xx response in the media type `accept`, however long it is. Throws
    /// gateway_unreachable, also when the body is incomplete, and gateway_refusal.
    void download(std::string_view target, std::string_view accept,
                  const std::function<void(std::string_view)>& handle_piece) const;

    /// Returns the JSON of a 2xx response. Throws gateway_unreachable, gateway_refusal.
    boost::json::value get(std::string_view target) const;

    /// Calls `handle_page` with the items of each page of a list, until `limit` items were read or the list ends.
    ///
    /// Out:    whether the list has more items.
    /// Errors: throws as get.
    bool read_pages(std::string_view path, std::vector<std::pair<std::string, std::string>> parameters,
                    std::size_t limit, const std::function<void(const boost::json::array&)>& handle_page) const;

    /// Calls `handle_event` with each event of a stream as it arrives, until that returns false. When the connection
    /// breaks, is silent for too long or the gateway fails temporarily (429, 5xx), reconnects after the last event.
    ///
    /// In:     `after` the id of the last event that is not sent again; empty: only new ones are sent.
    /// Errors: throws gateway_unreachable when the first request got no answer, and gateway_refusal.
    void follow_events(std::string_view target, const std::function<bool(const stream_event&)>& handle_event,
                       const std::string& after = {}) const;

    /// Returns the address of the present gateway.
    const gateway_address& address() const { return addresses_[current_]; }
    const std::vector<gateway_address>& addresses() const { return addresses_; }
    std::size_t gateways() const { return addresses_.size(); }
    /// Returns the number of the present gateway.
    std::size_t gateway() const { return current_; }
    /// Begins the next call with the next gateway, unless another call that failed has done so already.
    void leave_gateway(std::size_t failed) const;
    std::chrono::milliseconds timeout() const { return timeout_; }
    const tls_identity& identity() const { return identity_; }
    /// Adds what every request of this caller has: the API key and the cell.
    void add_caller(http_request& request) const;

  private:
    std::vector<gateway_address> addresses_;
    mutable std::atomic<std::size_t> current_ = 0;
    tls_identity identity_;
    std::string api_key_;
    std::string cell_;
    std::chrono::milliseconds timeout_;
};

/// Renders a problem document (RFC 9457) as lines for a user: title, detail, each error, request_id.
std::string describe(const http_response& problem);

}  // namespace fencegate::cli
