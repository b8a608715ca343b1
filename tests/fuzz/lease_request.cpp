// The requests about leases: the bodies of acquire, renew, revoke and of a repaired fence,
// the queries of the live leases and of a release. The first line names the request;
// the second one is its Idempotency-Key, for an operator's request the resource.
#include "fuzz.hpp"
#include "refusal.hpp"

#include <gateway/api/leases/lease_request.hpp>

#include <lockcore/encoding.hpp>

#include <algorithm>
#include <string>

namespace fencegate::fuzz {
namespace {

using std::chrono::milliseconds;

const lockcore::config limits;
constexpr lockcore::cell_id own_cell = 7;
constexpr std::int64_t token_max = (std::int64_t{1} << 53U) - 1;

void check_failure(const failure& why) {
    if (why.code != errc::unsupported_media_type) check_refusal(why);
}

bool has_control_character(std::string_view text) {
    return std::ranges::any_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

/// Whether the text has only what the name of a resource may contain.
bool is_of_a_name(std::string_view text) {
    return text.size() <= 200 && text.find("//") == std::string_view::npos && !text.starts_with('/') &&
           !has_control_character(text) && lockcore::is_utf8(text);
}

void check_acquire(const http::request& r) {
    const auto wanted = api::parse_lease_request(r, limits);
    if (!wanted) return check_failure(wanted.error());
    const lockcore::acquire_request& acquire = wanted->acquire;
    auto names = acquire.resources;
    require(!names.empty() && names.size() <= 64, "a lease has 1 to 64 resources");
    require(lockcore::names_bytes(names) <= 4'096, "a lease has 4 KiB of names");
    std::ranges::sort(names);
    require(std::ranges::adjacent_find(names) == names.end(), "a resource is named once");
    require(std::ranges::all_of(names, [](const auto& name) { return is_of_a_name(name.str()); }),
            "a resource has the name of a resource");
    require(acquire.ttl >= milliseconds{100} && acquire.ttl <= limits.max_ttl, "the ttl is bounded");
    require(acquire.wait >= milliseconds{0} && acquire.wait <= limits.max_wait, "the wait is bounded");
    require(wanted->max_hold > milliseconds{0} && wanted->max_hold <= limits.max_hold, "the longest hold is bounded");
    require(acquire.holder.owner.size() <= 128 && !has_control_character(acquire.holder.owner),
            "an owner is a short text for people");
    require(acquire.idempotency_key.size() <= 64 && !has_control_character(acquire.idempotency_key) &&
                acquire.idempotency_key.find(' ') == std::string::npos,
            "a key is a short visible text");
    require(acquire.holder.principal == r.principal, "a lease is of the caller's principal");
    require(acquire.kept == (r.media_type == 1), "only a stream keeps its lease");
}

void check_renewal(const http::request& r) {
    const auto ttl = api::parse_renewal(r, limits);
    if (!ttl) return check_failure(ttl.error());
    require(*ttl >= milliseconds{100} && *ttl <= limits.max_ttl, "the ttl is bounded");
    require(!r.body.empty() || *ttl == limits.default_ttl, "a renewal without a body has the default ttl");
}

void check_listing(std::string_view query) {
    const auto wanted = api::parse_lease_listing(query, own_cell);
    if (!wanted) return check_failure(wanted.error());
    require(wanted->limit >= 1 && wanted->limit <= 1'000, "the limit is bounded");
    require(is_of_a_name(wanted->prefix) && is_of_a_name(wanted->after), "prefix and cursor are of names");
}

void check_order(const http::request& r, api::operator_request kind) {
    const auto order = api::parse_operator_order(r, kind);
    if (!order) return check_failure(order.error());
    require(order->resource.str() == r.path_parameters.front(), "the order is for the resource of the path");
    require(!order->reason.empty() && order->reason.size() <= 500, "a reason is a bounded text");
    const bool repairs = kind == api::operator_request::repair_fence;
    require(order->token.has_value() || !repairs, "a repair has a token");
    const std::uint64_t lowest = repairs ? 0 : 1;
    require(!order->token || (*order->token >= lowest && *order->token <= token_max + 1), "the token is bounded");
}

}  // namespace

void run_input(std::string_view input) {
    const std::string_view kind = take_line(input);
    http::request r;
    r.verb = http::method::post;
    r.principal = "orders";
    r.rights = std::make_shared<const http::rights>(http::rights::all());
    r.headers.emplace_back("content-type", "application/json");
    if (kind == "list") return check_listing(input);
    const std::string_view second = take_line(input);
    r.body = input;
    if (kind == "acquire" || kind == "keep") {
        if (!second.empty()) r.headers.emplace_back("idempotency-key", second);
        r.media_type = kind == "keep" ? 1 : 0;
        return check_acquire(r);
    }
    if (kind == "renew") return check_renewal(r);
    r.path_parameters.emplace_back(second);
    if (kind == "revoke") check_order(r, api::operator_request::revoke_lease);
    if (kind == "fence") check_order(r, api::operator_request::repair_fence);
}

}  // namespace fencegate::fuzz
