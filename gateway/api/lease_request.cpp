#include <gateway/api/lease_request.hpp>

#include <gateway/http/accept.hpp>
#include <gateway/http/fields.hpp>
#include <gateway/http/json_io.hpp>

#include <algorithm>

namespace fencegate::api {
namespace {

constexpr std::size_t owner_bytes_max = 128;
constexpr std::size_t resource_bytes_max = 200;

std::optional<lockcore::resource_name> parse_name(std::string_view text, std::string pointer,
                                                  http::fault_list& faults) {
    auto name = lockcore::resource_name::parse(text);
    if (name) return std::move(*name);
    faults.add(std::move(pointer), name.error().detail);
    return std::nullopt;
}

std::optional<lockcore::resource_name> read_resource(const http::object_reader& body, http::fault_list& faults) {
    if (body.has("resource") && body.has("resources")) {
        body.fault("resources", "is given together with resource; one of them only");
        return std::nullopt;
    }
    if (body.has("resource")) {
        const auto text = body.text("resource", resource_bytes_max);
        return text ? parse_name(*text, body.pointer_to("resource"), faults) : std::nullopt;
    }
    if (!body.has("resources")) {
        body.fault("resource", "is missing");
        return std::nullopt;
    }
    const boost::json::array* names = body.array("resources");
    if (names == nullptr) return std::nullopt;
    if (names->size() != 1) {
        body.fault("resources", names->empty() ? "has to name a resource" : "this version takes one resource a lease");
        return std::nullopt;
    }
    std::string pointer = http::child_pointer(body.pointer_to("resources"), std::size_t{0});
    const boost::json::string* text = names->front().if_string();
    if (text == nullptr) {
        faults.add(std::move(pointer), "has to be a string");
        return std::nullopt;
    }
    return parse_name({text->data(), text->size()}, std::move(pointer), faults);
}

bool has_control_character(std::string_view text) {
    return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

std::chrono::milliseconds read_ttl(const http::object_reader& body, const lockcore::config& limits) {
    const auto given = body.integer("ttl_ms", {lockcore::ttl_min.count(), limits.max_ttl.count()});
    return given ? std::chrono::milliseconds(*given) : limits.default_ttl;
}

}  // namespace

result<lease_request> parse_lease_request(const http::request& r, const lockcore::config& limits) {
    if (http::preferred_type(r.header("accept"), {"application/json", "text/event-stream"}) == std::size_t{1}) {
        return make_failure(errc::not_acceptable,
                            "This version does not keep leases over a stream of events (text/event-stream); accept "
                            "application/json and renew the lease.");
    }
    const auto parsed = http::parse_object_body(r);
    if (!parsed) return parsed.error();

    http::fault_list faults;
    const http::object_reader body(*parsed, "", faults);
    body.refuse_unknown({"resource", "resources", "ttl_ms", "wait_ms", "owner", "fence_on_grant"});
    if (r.has_header("idempotency-key")) {
        faults.add("Idempotency-Key",
                   "this version does not support this header; a lease whose answer was lost runs out by itself");
    }
    lease_request out;
    auto resource = read_resource(body, faults);
    if (resource) out.acquire.resources.push_back(std::move(*resource));
    out.acquire.ttl = read_ttl(body, limits);
    out.acquire.wait = std::chrono::milliseconds(body.integer("wait_ms", {0, limits.max_wait.count()}).value_or(0));
    const std::string_view owner = body.text("owner", owner_bytes_max, true).value_or("");
    if (has_control_character(owner)) body.fault("owner", "has a control character");
    out.fence_on_grant = body.boolean("fence_on_grant").value_or(false);
    if (!faults.empty()) return std::move(faults).to_failure();

    out.acquire.by.principal = r.principal;
    out.acquire.by.owner = owner;
    out.acquire.trace_id = r.trace_id;
    return out;
}

result<std::chrono::milliseconds> parse_renewal(const http::request& r, const lockcore::config& limits) {
    if (r.body.empty()) return limits.default_ttl;
    const auto parsed = http::parse_object_body(r);
    if (!parsed) return parsed.error();
    http::fault_list faults;
    const http::object_reader body(*parsed, "", faults);
    body.refuse_unknown({"ttl_ms"});
    const auto ttl = read_ttl(body, limits);
    if (!faults.empty()) return std::move(faults).to_failure();
    return ttl;
}

}  // namespace fencegate::api
