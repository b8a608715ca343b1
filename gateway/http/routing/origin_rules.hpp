#pragma once

#include <gateway/config/authority.hpp>
#include <gateway/config/config.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/http/message.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace fencegate::http {

/// Refuses what a page of another site makes a browser send: requests for a host name that is not this gateway's (DNS
/// rebinding), and requests that come from a foreign origin.
///
/// Without API keys the browser's place on this machine is all that a caller needs, so hosts and origins of every
/// request are checked. With keys, which such a page does not have, hosts are checked where http.allowed_hosts is
/// given, and origins of requests that change something.
///
/// Threads: not changed after construction, so safe from any thread.
class origin_rules {
  public:
    origin_rules(const http_config& cfg, bool keyless);

    /// Whether `r` may be served. `host`: of the request target or the header Host; empty where HTTP/1.0 gives none,
    /// which no browser does. `local_address`: where the connection arrived.
    ///
    /// Errors: errc::invalid_request (not a host) · misdirected_request · forbidden.
    result<void> check(const request& r, std::string_view host, std::string_view local_address) const;

  private:
    bool is_own_host(const authority& named, std::string_view local_address) const;
    bool is_own_origin(std::string_view origin, const authority& host) const;
    bool is_allowed(const authority& named) const;

    std::vector<authority> allowed_;
    bool keyless_;
};

}  // namespace fencegate::http
