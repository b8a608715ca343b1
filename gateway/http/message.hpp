#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/history_item.hpp>
#include <gateway/domain/memory_budget.hpp>
#include <gateway/http/identity/identity.hpp>

#include <lockcore/types.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/address.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::limits {
class caller;
}

namespace fencegate::http {

enum class method { get, post, patch, put, del, head, options, other };

/// "GET", …; "-" for `other`.
std::string_view to_string(method m);
/// Returns the method of this name. Methods are case-sensitive; `other`: a method that no route has.
method parse_method(std::string_view text);

/// Returns rights that allow nothing.
const std::shared_ptr<const rights>& no_rights();

/// A request after parsing and authentication. Handlers see this and no Beast type.
struct request {
    method verb = method::other;
    std::string path;                          ///< As sent, without query; still percent-encoded.
    std::string query;                         ///< Without '?'; still encoded.
    std::vector<std::string> path_parameters;  ///< Decoded, in the order of the route's placeholders.
    /// Names in lower case. The API key is left out: handlers have no use for it and so cannot leak it.
    std::vector<std::pair<std::string, std::string>> headers;
    std::string body;
    /// Counts the memory that the parsed body takes, until the handler has ended.
    reserved_memory* memory = nullptr;

    std::string request_id;  ///< X-Request-Id as sent, or a new one.
    std::string trace_id;    ///< From traceparent; empty if there is none.
    std::string origin;      ///< trace_id and describe_origin(), for the events of the request (set_origin).
    std::string principal;
    /// What the caller may do; never null. No rights until it is authenticated. Stays valid when the keys are reloaded.
    std::shared_ptr<const http::rights> rights = no_rights();
    std::chrono::system_clock::time_point rights_until;  ///< When the token or client certificate ends.
    std::shared_ptr<limits::caller> caller;  ///< The limits of the principal, and what it uses; null without one.
    boost::asio::ip::address peer;           ///< The address of the caller, or of a proxy before it.
    std::size_t media_type = 0;  ///< Index of the media type that the caller prefers, among those of the route.
    std::chrono::steady_clock::time_point deadline;  ///< From when the whole request has arrived.

    /// Returns the first value of a header; empty if it is absent. `name` in lower case.
    std::string_view header(std::string_view name) const;
    bool has_header(std::string_view name) const;
    /// Returns all values of a header as one list, joined by commas (RFC 9110, 5.3).
    std::string header_list(std::string_view name) const;
};

/// A text that is valid for a limited time, such as a lease. It is rendered immediately before it is sent, and it is
/// not sent when that time is over.
struct expiring_text {
    lockcore::validity_time valid_until;
    /// `left`: the time until valid_until, at least 1 ms. `served`: the time since the request was received.
    std::function<std::string(std::chrono::milliseconds left, std::chrono::milliseconds served)> render;
};

/// Sends a streamed answer piece by piece.
class body_stream {
  public:
    enum class outcome {
        sent,
        expired,      ///< Nothing of it was sent, because it is no longer valid.
        caller_gone,  ///< The connection is lost; nothing more reaches the caller.
    };
    virtual ~body_stream() = default;
    virtual boost::asio::awaitable<outcome> send_expiring(const expiring_text& piece) = 0;
    /// Returns the time since the request was received.
    virtual std::chrono::milliseconds served() const = 0;
    /// Sends a piece.
    ///
    /// Out: false if the connection is lost. A caller that reads nothing for http.idle_timeout loses its connection.
    virtual boost::asio::awaitable<bool> send(std::string_view piece) = 0;
    /// Waits until the system of the peer has acknowledged all that was sent.
    ///
    /// Out:    false if `until` came first.
    /// Cancel: terminal; returns true.
    virtual boost::asio::awaitable<bool> wait_acknowledged(lockcore::validity_time until) = 0;
    /// Closes the connection when its peer acknowledges nothing for `longest`; 0: no such limit.
    virtual void limit_unacknowledged(std::chrono::milliseconds longest) = 0;
};

struct response {
    unsigned status = 200;
    std::string content_type = "application/json";
    std::string body;
    std::shared_ptr<reserved_memory> memory;  ///< The memory of `body`, if it was counted while it was made.
    std::string_view problem;                 ///< The slug, if the body is a problem document.
    std::string problem_detail;               ///< The sentence for the caller, if it is one.
    std::string problem_resource;             ///< The resource that it concerns; empty if it names none.
    bool problem_in_history = false;          ///< As failure::in_history.
    /// Headers beside those that each answer has, such as Content-Length, Date and X-Request-Id.
    std::vector<std::pair<std::string, std::string>> headers;

    /// In place of `body`. If it has expired before its first byte is sent, the answer is 410 lease-lost and
    /// undo_undelivered runs.
    std::optional<expiring_text> expiring_body;

    /// Writes the body piece by piece in place of `body`; the answer ends when it returns.
    ///
    /// Cancel: terminal when the caller hangs up or the server stops. It must then end soon, and may still send.
    std::function<boost::asio::awaitable<void>(body_stream&)> stream;

    /// Runs when the caller did not receive this answer, because the connection was lost before the last byte (of a
    /// streamed answer: of its head) was sent. It undoes what was granted to a caller that cannot know of it.
    /// Empty: nothing to undo.
    std::function<boost::asio::awaitable<void>()> undo_undelivered;
};

/// The answer to a request, or the failure, of which the exchange makes a problem document.
using awaitable_response = boost::asio::awaitable<result<response>>;

/// Wraps what is known already, for handlers that are not coroutines.
inline awaitable_response as_awaitable(result<response> made) {
    co_return made;
}

/// Answers a request.
///
/// Cancel: terminal when the caller hangs up, on routes marked long_waiting; on every route when the time that a
///         shutdown allows is over.
using handler = std::function<awaitable_response(request)>;

/// Status of a request whose caller hung up before the answer. nginx uses the same number; it is never sent.
inline constexpr unsigned status_client_closed_request = 499;

/// The result of a request. Without the path, which may contain a lease_id, the body and the key.
struct served_request {
    method verb = method::other;
    std::string_view route_path;  ///< The route's template; "-" if there is none. Valid as long as the routes.
    std::string_view principal;   ///< Empty: not authenticated.
    std::string_view credential;  ///< identity::credential_name.
    std::string_view request_id;
    std::string_view trace_id;         ///< Empty if the request has none.
    std::string_view problem;          ///< The slug of the problem document that was the answer; empty for none.
    std::string_view reason;           ///< Its detail; never a key, a token or a lease_id.
    std::string_view resource;         ///< The resource that it concerns; empty if it names none.
    bool in_history = false;           ///< The history has an event of this refusal already.
    boost::asio::ip::address address;  ///< The other end of the connection.
    unsigned status = 0;               ///< The status sent, or status_client_closed_request.
    std::chrono::steady_clock::duration time{};  ///< Up to the answer's first byte, also for a stream.
};

/// Observes each answered request, on the thread that answered it.
class request_observer {
  public:
    virtual ~request_observer() = default;
    virtual void on_served(const served_request& request) noexcept = 0;
};

}  // namespace fencegate::http
