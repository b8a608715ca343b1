#pragma once

#include <gateway/http/message.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::http {

/// One method and path with its handler.
struct route {
    method verb = method::get;
    std::string path;  ///< Template: `/v1/leases/{lease_id}/renew`. A placeholder matches one non-empty segment.
    std::optional<scope> required_scope;  ///< Empty: open to everyone, without authentication.
    handler handle;
    bool long_waiting = false;  ///< May wait long; a caller that hangs up cancels it.
    /// The request names resources, and the handler requires the scope for them. Otherwise the dispatcher requires it for
    /// all resources.
    bool names_resources = false;
    bool uses_lease = false;    ///< Renews, shows or releases a lease by its id: limits::request_class::of_lease.
    bool is_probe = false;      ///< Says whether the gateway works; the limits of addresses do not apply.
    bool is_readiness = false;  ///< Says whether the gateway can serve: its answers of 503 are logged at debug only.
    failure (*complete_failure)(failure) = nullptr;  ///< Adds to each failure of the handler; null: nothing.
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

}  // namespace fencegate::http
