#pragma once

#include <gateway/http/message.hpp>

#include <boost/asio/ip/address.hpp>

#include <chrono>
#include <string_view>

namespace fencegate::http {

/// Status of a request whose caller hung up before the answer. nginx uses the same number; it is never sent.
inline constexpr unsigned status_client_closed_request = 499;

/// The result of a request. Without the path, which may contain a lease_id, the body and the key.
struct served_request {
    method verb = method::other;
    std::string_view route_path;  ///< The route's template; "-" if there is none. Valid as long as the routes.
    std::string_view principal;   ///< Empty: not authenticated.
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
