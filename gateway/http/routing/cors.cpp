#include <gateway/http/routing/cors.hpp>

#include <algorithm>

namespace fencegate::http {
namespace {

/// The headers of requests that the contract knows; a browser asks before it sends one of them.
constexpr std::string_view request_headers =
    "Accept-Profile, Authorization, Content-Profile, Content-Type, Fencing-Cell, Fencing-Lease, Fencing-Resource, "
    "Fencing-Token, Idempotency-Key, Last-Event-ID, Prefer, X-Api-Key, X-Request-Id, traceparent, tracestate";
/// How long a browser may keep the answer to a preflight request, in seconds. A reload takes effect for it that much later.
constexpr std::string_view preflight_age = "600";

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

}  // namespace fencegate::http
