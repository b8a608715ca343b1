#pragma once

#include <gateway/config/config.hpp>
#include <gateway/domain/actor.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/memory_budget.hpp>

#include <lockcore/boot_clock.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::http {

enum class method { get, post, patch, put, del, head, options, other };

/// "GET", …; "-" for `other`.
std::string_view to_string(method m);
/// Exact, as methods are case-sensitive; `other` for what no route can have.
method parse_method(std::string_view text);

/// What a caller may do; a set of `scope` that costs nothing to copy with each request.
class scope_set {
  public:
    scope_set() = default;
    explicit scope_set(const std::set<scope>& scopes) {
        for (const scope s : scopes)
            bits_ |= bit(s);
    }
    bool has(scope s) const { return (bits_ & bit(s)) != 0; }
    static scope_set all();

  private:
    static constexpr unsigned bit(scope s) { return 1U << static_cast<unsigned>(s); }
    unsigned bits_ = 0;
};

/// A request after parsing and authentication. Handlers see this and no Beast type.
struct request {
    method verb = method::other;
    std::string path;                          ///< As sent, without query; still percent-encoded.
    std::string query;                         ///< Without '?'; still encoded.
    std::vector<std::string> path_parameters;  ///< Decoded, in the order of the route's placeholders.
    /// Names in lower case. Without the API key: it is of no use behind the edge and so cannot leak there.
    std::vector<std::pair<std::string, std::string>> headers;
    std::string body;
    reserved_memory* memory =
        nullptr;  ///< What parsing makes of the body is counted here, until the handler has ended.

    std::string request_id;  ///< X-Request-Id, echoed or made.
    std::string trace_id;    ///< Of traceparent, or empty.
    std::string principal;
    scope_set scopes;
    std::size_t media_type = 0;  ///< Of those that the address answers with, in its order: what the caller prefers.
    std::chrono::steady_clock::time_point deadline;  ///< Made at the edge, passed down, never renewed.

    /// Empty if absent; the first of several. `name` in lower case.
    std::string_view header(std::string_view name) const;
    bool has_header(std::string_view name) const;
    /// All of them as one list, joined by commas (RFC 9110, 5.3).
    std::string header_list(std::string_view name) const;
};

/// A text that is true for a limited time, such as a lease. It is rendered right before its bytes leave, and does not
/// leave at all when that time is over.
struct expiring_text {
    lockcore::validity_time valid_until;
    /// `left`: until valid_until, at least 1 ms. `served`: since the request was received.
    std::function<std::string(std::chrono::milliseconds left, std::chrono::milliseconds served)> render;
};

/// Where a streamed answer goes, piece by piece.
class body_stream {
  public:
    enum class outcome {
        sent,
        expired,      ///< Nothing of it was sent: it is not true any more.
        caller_gone,  ///< Nothing more will reach the caller.
    };
    virtual ~body_stream() = default;
    virtual boost::asio::awaitable<outcome> send_expiring(const expiring_text& piece) = 0;
    /// Since the request was received.
    virtual std::chrono::milliseconds served() const = 0;
    /// False: the caller is gone, nothing more will reach it. A caller that takes nothing for http.idle_timeout is
    /// gone.
    virtual boost::asio::awaitable<bool> send(std::string_view piece) = 0;
};

struct response {
    unsigned status = 200;
    std::string content_type = "application/json";
    std::string body;
    std::shared_ptr<reserved_memory> memory;  ///< For `body`, where it was counted while it was made.
    std::string_view problem;                 ///< The slug, where the body is a problem document.
    std::vector<std::pair<std::string, std::string>>
        headers;  ///< Beyond what the session adds (Content-Length, Date, X-Request-Id, Connection).

    /// In place of `body`. Where it has expired before its first byte is sent, the answer is 410 lease-lost instead,
    /// and undo_undelivered is run.
    std::optional<expiring_text> expiring_body;

    /// Writes the body piece by piece in place of `body`; the answer ends when it returns. Cancel: terminal where the
    /// caller hangs up and where the server stops; it is then to end soon, and may still send.
    std::function<boost::asio::awaitable<void>(body_stream&)> stream;

    /// Run where it is known that the caller did not get this answer, because the connection was gone before the last
    /// byte (of a streamed answer: of its head) was sent: takes back what the caller can't know that it was given.
    /// Empty: nothing to take back.
    std::function<boost::asio::awaitable<void>()> undo_undelivered;
};

/// Cancel: routes marked long_waiting get terminal cancellation when the caller hangs up; every route when a shutdown's
/// bound is over.
using handler = std::function<boost::asio::awaitable<response>(request)>;

}  // namespace fencegate::http
