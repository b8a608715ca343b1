#include <gateway/http/routing/origin_rules.hpp>

#include <algorithm>

namespace fencegate::http {
namespace {

/// The headers of requests that the contract knows; a browser asks before it sends one of them.
constexpr std::string_view request_headers =
    "Accept-Profile, Authorization, Content-Profile, Content-Type, Fencing-Cell, Fencing-Lease, Fencing-Resource, "
    "Fencing-Token, Idempotency-Key, Last-Event-ID, Prefer, X-Api-Key, X-Request-Id, traceparent, tracestate";
/// How long a browser may keep the answer to a preflight request, in seconds. A reload takes effect for it that much
/// later.
constexpr std::string_view preflight_age = "600";

bool is_safe(method verb) {
    return verb == method::get || verb == method::head || verb == method::options;
}

/// Returns whether a user follows a link. The browser shows the answer, and the site with the link cannot read it.
bool is_navigation(const request& r) {
    return is_safe(r.verb) && r.header("sec-fetch-mode") == "navigate" && r.header("sec-fetch-dest") == "document";
}

std::uint16_t port_of(const authority& named, std::uint16_t default_port) {
    return named.port.value_or(default_port);
}

}  // namespace

const std::string_view exposed_headers =
    "Allow, Content-Range, Date, ETag, Fencing-Rows-Left-Out, Fencing-Write-Id, Idempotency-Replayed, Location, "
    "Preference-Applied, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-Request-Id";

std::string_view cors_rules::allowed_origin(const request& r) const {
    const auto found = std::ranges::find(origins_, r.header("origin"));
    return found == origins_.end() ? std::string_view() : std::string_view(*found);
}

void cors_rules::answer_preflight(const request& r, std::string_view methods, response& answer) const {
    if (!r.has_header("access-control-request-method") || allowed_origin(r).empty()) return;
    answer.headers.emplace_back("Access-Control-Allow-Methods", methods);
    answer.headers.emplace_back("Access-Control-Allow-Headers", request_headers);
    answer.headers.emplace_back("Access-Control-Max-Age", preflight_age);
}

origin_rules::origin_rules(const http_config& cfg, const auth_config& auth)
    : allowed_(cfg.allowed_hosts),
      cors_(cfg.allowed_origins),
      keyless_(auth.is_keyless()),
      has_certificates_(!auth.client_certificates.empty()) {}

bool origin_rules::is_allowed(const authority& named) const {
    return std::ranges::any_of(allowed_, [&](const authority& entry) {
        return entry.host == named.host && (!entry.port || entry.port == named.port);
    });
}

bool origin_rules::is_own_host(const authority& named, std::string_view local_address) const {
    return is_loopback_host(named.host) || named.host == local_address || is_allowed(named);
}

bool origin_rules::is_own_origin(std::string_view origin, const authority& host) const {
    const std::size_t scheme_end = origin.find("://");
    if (scheme_end == std::string_view::npos) return false;  // "null": a sandboxed frame or a file
    const std::uint16_t default_port = origin.substr(0, scheme_end) == "https" ? 443 : 80;
    const auto named = parse_authority(origin.substr(scheme_end + 3));
    if (!named) return false;
    if (is_allowed(*named)) return true;
    return named->host == host.host && port_of(*named, default_port) == port_of(host, default_port);
}

result<void> origin_rules::check(const request& r, std::string_view host, std::string_view local_address) const {
    if (host.empty()) return {};
    const auto named = parse_authority(host);
    if (!named) return invalid_field("Host", "has to be a host name or an IP address, with or without a port");
    if ((keyless_ || !allowed_.empty()) && !is_own_host(*named, local_address)) {
        return make_failure(errc::misdirected_request,
                            "This gateway does not serve the host " + named->host + "; http.allowed_hosts adds hosts.");
    }
    if (!keyless_ && !has_certificates_ && is_safe(r.verb)) return {};
    const failure foreign = make_failure(
        errc::forbidden, "The request comes from a page of another site, which may not call this gateway.");
    if (r.has_header("origin")) {
        if (cors_.allowed_origin(r).empty() && !is_own_origin(r.header("origin"), *named)) return foreign;
        return {};
    }
    const std::string_view site = r.header("sec-fetch-site");
    const bool own_site = site.empty() || site == "same-origin" || site == "none";
    if (!own_site && !is_navigation(r)) return foreign;
    return {};
}

bool origin_rules::is_from_allowed_page(const request& r, std::string_view host) const {
    if (cors_.allowed_origin(r).empty()) return false;
    const auto named = parse_authority(host);
    return !named || !is_own_origin(r.header("origin"), *named);
}

}  // namespace fencegate::http
