#pragma once

#include <gateway/config/authority.hpp>
#include <gateway/config/config.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/http/message.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace fencegate::http {

/// Which pages of other sites may read answers (the CORS protocol of the Fetch standard, http.allowed_origins).
/// Credentials that a browser adds by itself are never allowed: a page has to send its API key or token.
///
/// Threads: any; immutable after construction.
class cors_rules {
  public:
    explicit cors_rules(std::vector<std::string> origins) : origins_(std::move(origins)) {}

    bool is_enabled() const { return !origins_.empty(); }

    /// Returns the origin of a request if its pages may read the answer; empty if they may not, or there is none.
    std::string_view allowed_origin(const request& r) const;

    /// Adds the fields that answer a preflight request (OPTIONS with Access-Control-Request-Method) of an allowed
    /// origin.
    ///
    /// In: `methods` those of the address, separated by commas.
    void answer_preflight(const request& r, std::string_view methods, response& answer) const;

  private:
    std::vector<std::string> origins_;
};

/// The headers of answers that scripts of an allowed origin may read.
extern const std::string_view exposed_headers;

/// Refuses requests that a page of another site makes a browser send: requests for a host name that is not this
/// gateway's (DNS rebinding), and requests from a foreign origin.
///
/// Without credentials any browser on this machine may call, so the host and origin of every request are checked. With
/// keys and tokens, which such a page does not have, hosts are checked if http.allowed_hosts is set, and origins of
/// requests that change something. Pages of http.allowed_origins may call. A browser sends a client certificate by
/// itself: with these the origin of every request is checked.
///
/// Threads: any; immutable after construction.
class origin_rules {
  public:
    origin_rules(const http_config& cfg, const auth_config& auth);

    const cors_rules& cors() const { return cors_; }

    /// Checks whether `r` may be served.
    ///
    /// In:     `host` is that of the request target or the header Host; empty if HTTP/1.0 gives none, which no browser
    ///         does. `local_address` is the address at which the connection arrived.
    /// Errors: errc::invalid_request (not a host) · misdirected_request · forbidden.
    result<void> check(const request& r, std::string_view host, std::string_view local_address) const;

    /// Returns whether a page of http.allowed_origins, none of this gateway's own, makes a browser send `r`. A client
    /// certificate, which the browser adds by itself, does not count then.
    bool is_from_allowed_page(const request& r, std::string_view host) const;

  private:
    bool is_own_host(const authority& named, std::string_view local_address) const;
    bool is_own_origin(std::string_view origin, const authority& host) const;
    bool is_allowed(const authority& named) const;

    std::vector<authority> allowed_;
    cors_rules cors_;
    bool keyless_;
    bool has_certificates_;
};

}  // namespace fencegate::http
