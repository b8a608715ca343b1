#pragma once

#include <gateway/http/identity/identity.hpp>
#include <gateway/http/message.hpp>
#include <gateway/http/routing/auth.hpp>
#include <gateway/http/routing/origin_rules.hpp>
#include <gateway/limits/limiter.hpp>

#include <lockcore/types.hpp>

#include <boost/asio/ip/address.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::http {

/// What a route supports of the media types and preferences that headers may ask for.
struct answer_options {
    std::vector<std::string_view> media_types{"application/json"};  ///< The default, used without Accept, first.
    /// Supported preferences, as `name`, or as `name=value` if not every value is supported.
    std::vector<std::string_view> preferences{};
    bool changes_something = false;
    bool has_parameters = false;  ///< The handler reads the query.
};

/// One method and path with its handler.
struct route {
    method verb = method::get;
    std::string path;  ///< Template: `/v1/leases/{lease_id}/renew`. A placeholder matches one non-empty segment.
    std::optional<scope> required_scope;  ///< Empty: open to everyone, without authentication unless about_caller.
    handler handle;
    bool long_waiting = false;  ///< May wait long; a caller that hangs up cancels it.
    /// The request names resources, and the handler requires the scope for them. Otherwise the dispatcher requires it
    /// for all resources.
    bool names_resources = false;
    bool uses_lease = false;    ///< Renews, shows or releases a lease by its id: limits::request_class::of_lease.
    bool is_probe = false;      ///< Says whether the gateway works; the limits of addresses do not apply.
    bool is_readiness = false;  ///< Says whether the gateway can serve: its answers of 503 are logged at debug only.
    std::optional<lockcore::cell_id> own_cell{};  ///< Which Fencing-Cell may name (negotiate); empty: it is not read.
    std::optional<answer_options> options{};  ///< Of negotiate; empty: Accept, Prefer and the query are not checked.
    failure (*complete_failure)(failure) = nullptr;  ///< Adds to each failure of the handler; null: nothing.
    bool about_caller = false;  ///< Of every caller: who sends a credential is authenticated, who sends none is nobody.
};

/// Finds the route of a method and a path.
///
/// Threads: any; immutable after construction.
class router {
  public:
    /// Errors: std::logic_error if two routes have the same method and path.
    explicit router(std::vector<route> routes);

    enum class outcome {
        found,
        not_found,           ///< No route has such a path.
        method_not_allowed,  ///< The path has other methods, named in `allow`.
        options,             ///< OPTIONS of a path that exists; `allow` is the answer.
        malformed,           ///< A percent sign without two hexadecimal digits.
    };
    struct match {
        outcome kind = outcome::not_found;
        const route* target = nullptr;  ///< found
        std::vector<std::string> parameters;
        std::string allow;
    };

    /// Finds the route of `path`, which is still percent-encoded. A `%2F` inside a segment stays part of it. HEAD finds
    /// the route of GET.
    match find(method verb, std::string_view path) const;

  private:
    struct segment {
        std::string text;
        bool placeholder = false;
    };
    std::vector<route> routes_;
    std::vector<std::vector<segment>> templates_;  ///< One for each route, in the same order.
};

/// Chooses the handler of a request, or the answer that it gets without a handler. prepare() uses no sockets and does
/// not wait.
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
    struct decision {
        const route* target = nullptr;  ///< The route whose handler to call; null: `answer` is final.
        response answer;
        std::string_view route_path = "-";       ///< The template, for the log: the path itself may contain a lease_id.
        std::shared_ptr<const identity> caller;  ///< Null: not authenticated.
        limits::rate_fields rate;                ///< Of a request that this call has counted.
        bool address_refused = false;            ///< `answer` refuses the address, and not only this request.

        /// Empty: not authenticated.
        std::string_view principal() const { return caller ? std::string_view(caller->principal) : std::string_view(); }
    };

    /// Sets request_id, trace_id, origin (if authenticated), path_parameters, principal, caller, rights and deadline of
    /// `r`, and returns what to do with it. Counts the request against the limits of its address before it verifies a
    /// credential, and against those of its principal after it.
    decision prepare(request& r, const sender& source, std::chrono::steady_clock::time_point now) const;

    /// Counts a request that could not be read against the limits of its address.
    ///
    /// Out: the answer: `fault`, or above the limit that failure.
    decision refuse_unreadable(const failure& fault, const sender& source, std::string_view request_id,
                               std::chrono::steady_clock::time_point now) const;

    const cors_rules& cors() const { return origin_rules_.cors(); }
    /// As authenticator::accepts.
    bool accepts(const identity& caller) const { return authenticator_.accepts(caller); }
    /// As authenticator::token_source_fault.
    const std::string& token_source_fault() const { return authenticator_.token_source_fault(); }
    /// As authenticator::token_keys.
    std::shared_ptr<const token_key_set> token_keys() const { return authenticator_.token_keys(); }

  private:
    decision decide(request& r, sender source, std::chrono::steady_clock::time_point now) const;
    /// Finds the caller of a request, within the limits of its address.
    authenticator::caller_result authenticate(const sender& source, std::chrono::steady_clock::time_point now) const;

    std::shared_ptr<const router> router_;
    authenticator authenticator_;
    origin_rules origin_rules_;
    std::string gateway_;
    std::chrono::milliseconds request_timeout_;
    limits::limiter& limiter_;
};

/// Checks Fencing-Cell, Accept, Prefer, Accept-Profile, Content-Profile, conditional headers and the query as the route
/// requires, before its handler runs, and sets request::media_type. So nothing runs that is meant for another cell, or
/// whose answer the caller would not accept.
///
/// An unsupported preference is ignored (RFC 7240), except with handling=strict, and except if the route changes
/// something and the preference would change what: max-affected, tx, timezone and params.
/// There is one set of table and function names, which both profiles may call `public`.
///
/// Errors: misdirected_request (another cell), not_acceptable or invalid_request, which name the header or the
///         parameter.
result<void> negotiate(request& r, const route& target);

/// The value of WWW-Authenticate without a token.
inline constexpr std::string_view challenge = "Bearer realm=\"fencegate\"";

/// Returns X-Request-Id as sent if it is 1 to 128 visible ASCII characters, otherwise a new one.
std::string request_id_of(const request& r);

/// Returns where a request came from, for the history: request_id, address, gateway and, if there is one, credential.
std::string describe_origin(std::string_view request_id, std::string_view address, std::string_view gateway,
                            std::string_view credential);

/// Returns the trace-id of a W3C traceparent; empty if it is not valid.
std::string_view trace_id_of(std::string_view traceparent);

}  // namespace fencegate::http
