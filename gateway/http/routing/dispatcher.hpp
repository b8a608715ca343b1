#pragma once

#include <gateway/http/identity/identity.hpp>
#include <gateway/http/message.hpp>
#include <gateway/http/routing/auth.hpp>
#include <gateway/http/routing/origin_rules.hpp>
#include <gateway/http/routing/router.hpp>
#include <gateway/limits/limiter.hpp>

#include <boost/asio/ip/address.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

namespace fencegate::http {

/// Chooses the handler of a request, or the answer that it gets without a handler. prepare() uses no sockets and does not wait.
///
/// Has all that a reload of the configuration changes about requests: a reload makes a new dispatcher with the same
/// routes.
///
/// Threads:  any; immutable after construction.
/// Lifetime: the limiter outlives it.
class dispatcher {
  public:
    /// `replaced`: the dispatcher before a reload; null at the start.
    dispatcher(std::shared_ptr<const router> routes, const auth_config& auth, const http_config& cfg,
               limits::limiter& limiter, const dispatcher* replaced = nullptr);

    /// Where a request comes from and which host it names.
    struct sender {
        std::string_view authorization;
        std::string_view x_api_key;
        std::string_view host;                            ///< request_parser::host.
        std::string_view local_address;                   ///< The address at which the connection arrived.
        const client_certificate* certificate = nullptr;  ///< Verified by the transport; null: the caller sent none.
        boost::asio::ip::address peer{};
        bool counted = false;  ///< An earlier call for this request has counted it against the limits.
    };
    struct plan {
        const route* target = nullptr;  ///< The route whose handler to call; null: `answer` is final.
        response answer;
        std::string_view route_path = "-";       ///< The template, for the log: the path itself may contain a lease_id.
        std::shared_ptr<const identity> caller;  ///< Null: not authenticated.
        limits::rate_fields rate;                ///< Of a request that this call has counted.
        bool address_refused = false;            ///< `answer` refuses the address, and not only this request.

        /// Empty: not authenticated.
        std::string_view principal() const { return caller ? std::string_view(caller->principal) : std::string_view(); }
    };

    /// Sets request_id, trace_id, path_parameters, principal, caller, rights and deadline of `r`, and returns what to do
    /// with it. Counts the request against the limits of its address before it verifies a credential, and against those
    /// of its principal after it.
    plan prepare(request& r, sender source, std::chrono::steady_clock::time_point now) const;

    /// Counts a request that could not be read against the limits of its address.
    ///
    /// Out: the answer: `fault`, or above the limit that failure.
    plan refuse_unreadable(const failure& fault, const sender& source, std::string_view request_id,
                           std::chrono::steady_clock::time_point now) const;

    const cors_rules& cors() const { return origin_rules_.cors(); }
    /// As authenticator::accepts.
    bool accepts(const identity& caller) const { return authenticator_.accepts(caller); }
    /// As authenticator::token_source_fault.
    const std::string& token_source_fault() const { return authenticator_.token_source_fault(); }
    /// As authenticator::token_keys.
    std::shared_ptr<const token_key_set> token_keys() const { return authenticator_.token_keys(); }

  private:
    /// Finds the caller of a request, within the limits of its address.
    authenticator::caller_result authenticate(const sender& source, std::chrono::steady_clock::time_point now) const;

    std::shared_ptr<const router> router_;
    authenticator authenticator_;
    origin_rules origin_rules_;
    std::chrono::milliseconds request_timeout_;
    limits::limiter& limiter_;
};

/// The value of WWW-Authenticate without a token.
inline constexpr std::string_view challenge = "Bearer realm=\"fencegate\"";

/// Returns X-Request-Id as sent if it is 1 to 128 visible ASCII characters, otherwise a new one.
std::string request_id_of(const request& r);

/// Returns the trace-id of a W3C traceparent; empty if it is not valid.
std::string_view trace_id_of(std::string_view traceparent);

}  // namespace fencegate::http
