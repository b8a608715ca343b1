#include <gateway/api/leases/lease_request.hpp>

#include <gateway/api/writes/idempotency.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/json_io.hpp>

#include <lockcore/encoding.hpp>

#include <algorithm>
#include <span>
#include <utility>

namespace fencegate::api {
namespace {

constexpr std::size_t owner_bytes_max = 128;
constexpr std::size_t mode_bytes_max = 16;

std::optional<lockcore::resource_name> parse_name(std::string_view text, std::string pointer,
                                                  http::fault_list& faults) {
    auto name = lockcore::resource_name::parse(text);
    if (name) return std::move(*name);
    faults.add(std::move(pointer), name.error().detail);
    return std::nullopt;
}

std::vector<lockcore::resource_name> read_names(const boost::json::array& names, const std::string& pointer,
                                                std::size_t least, http::fault_list& faults) {
    std::vector<lockcore::resource_name> out;
    if (names.size() < least || names.size() > lockcore::resources_max)
        faults.add(pointer, "has to name " + std::to_string(least) + " to " + std::to_string(lockcore::resources_max) +
                                " resources");
    for (std::size_t i = 0; i < std::min(names.size(), lockcore::resources_max); ++i) {
        std::string at = http::child_pointer(pointer, i);
        const boost::json::string* text = names[i].if_string();
        if (text == nullptr) {
            faults.add(std::move(at), "has to be a string");
            continue;
        }
        auto name = parse_name({text->data(), text->size()}, at, faults);
        if (name && std::ranges::find(out, *name) != out.end()) faults.add(std::move(at), "is named more than once");
        if (name) out.push_back(std::move(*name));
    }
    if (lockcore::names_bytes(out) > lockcore::names_bytes_max)
        faults.add(pointer,
                   "has to name them in at most " + std::to_string(lockcore::names_bytes_max) + " bytes together");
    return out;
}

std::vector<lockcore::resource_name> read_names(const http::object_reader& body, const char* list, std::size_t least,
                                                http::fault_list& faults) {
    const boost::json::array* names = body.array(list);
    if (names == nullptr) return {};
    return read_names(*names, body.pointer_to(list), least, faults);
}

std::vector<lockcore::resource_name> read_resources(const http::object_reader& body, http::fault_list& faults) {
    const bool any_of = body.has("any_of");
    const char* const list = any_of ? "any_of" : "resources";
    for (const char* other : {"resource", "resources"}) {
        if (list == std::string_view(other) || !body.has(list) || !body.has(other)) continue;
        body.fault(list, "is given together with " + std::string(other) + "; give only one of them");
        return {};
    }
    if (body.has(list)) return read_names(body, list, any_of ? 2 : 1, faults);
    if (!body.has("resource")) body.fault("resource", "is missing");
    const auto text = body.text("resource", lockcore::resource_name::bytes_max);
    auto name = text ? parse_name(*text, body.pointer_to("resource"), faults) : std::nullopt;
    if (!name) return {};
    return {std::move(*name)};
}

/// Reads the names that are shared beside exclusive ones.
std::vector<lockcore::resource_name> read_shared(const http::object_reader& body,
                                                 const std::vector<lockcore::resource_name>& exclusive,
                                                 http::fault_list& faults) {
    std::vector<lockcore::resource_name> out = read_names(body, "shared", 1, faults);
    for (std::size_t i = 0; i < out.size(); ++i) {
        if (std::ranges::find(exclusive, out[i]) != exclusive.end())
            faults.add(http::child_pointer(body.pointer_to("shared"), i), "is named as exclusive too");
    }
    const std::size_t bytes = lockcore::names_bytes(exclusive) + lockcore::names_bytes(out);
    if (out.size() + exclusive.size() > lockcore::resources_max || bytes > lockcore::names_bytes_max)
        body.fault("shared", "has to name, together with the exclusive resources, at most " +
                                 std::to_string(lockcore::resources_max) + " with at most " +
                                 std::to_string(lockcore::names_bytes_max) + " bytes");
    return out;
}

/// Reads all names of a lease, and how it has them.
void read_all_names(const http::object_reader& body, lockcore::acquire_request& out, http::fault_list& faults) {
    out.resources = read_resources(body, faults);
    const auto mode = body.text("mode", mode_bytes_max).value_or("exclusive");
    const bool all_shared = mode == "shared";
    if (!all_shared && mode != "exclusive") body.fault("mode", "has to be \"exclusive\" or \"shared\"");
    if (body.has("any_of") && (all_shared || body.has("shared"))) {
        body.fault("any_of", "is exclusive; leave out mode and shared, or name one resource");
    } else if (all_shared && body.has("shared")) {
        body.fault("shared", "is for names beside exclusive ones; with mode \"shared\" put all into resources");
    } else if (body.has("shared")) {
        out.shared = read_shared(body, out.resources, faults);
    }
    if (all_shared) out.shared = std::exchange(out.resources, {});
}

std::chrono::milliseconds read_ttl(const http::object_reader& body, const lockcore::config& protocol) {
    const auto given = body.integer("ttl_ms", {lockcore::ttl_min.count(), protocol.max_ttl.count()});
    return given ? std::chrono::milliseconds(*given) : protocol.default_ttl;
}

lease_request read_lease_request(const http::object_reader& body, const http::request& r,
                                 const lockcore::config& protocol, http::fault_list& faults) {
    body.refuse_unknown({"resource", "resources", "any_of", "mode", "shared", "ttl_ms", "wait_ms", "owner",
                         "fence_on_grant", "max_hold_ms"});
    lease_request out;
    out.any_of = body.has("any_of");
    out.acquire = read_wanted_lease(body, r, protocol, faults);
    out.acquire.idempotency_key = read_idempotency_key(r, faults);
    out.fence_on_grant = body.boolean("fence_on_grant").value_or(false);
    const auto max_hold = body.integer("max_hold_ms", {lockcore::ttl_min.count(), protocol.max_hold.count()});
    out.max_hold = max_hold ? std::chrono::milliseconds(*max_hold) : protocol.max_hold;
    return out;
}

constexpr std::int64_t limit_max = 1'000;
constexpr std::size_t reason_bytes_max = 500;

std::string read_reason(const http::object_reader& body) {
    if (!body.has("reason")) body.fault("reason", "is required, because the history records it");
    const auto reason = body.text("reason", reason_bytes_max);
    if (reason && reason->find_first_not_of(" \t\r\n") == std::string_view::npos)
        body.fault("reason", "must not be blank, because the history records it");
    return std::string(reason.value_or(""));
}

}  // namespace

lockcore::acquire_request read_wanted_lease(const http::object_reader& body, const http::request& r,
                                            const lockcore::config& protocol, http::fault_list& faults) {
    lockcore::acquire_request out;
    read_all_names(body, out, faults);
    out.ttl = read_ttl(body, protocol);
    out.wait = std::chrono::milliseconds(body.integer("wait_ms", {0, protocol.max_wait.count()}).value_or(0));
    const std::string_view owner = body.text("owner", owner_bytes_max, true).value_or("");
    if (lockcore::has_control_character(owner)) body.fault("owner", "has a control character");
    out.holder.principal = r.principal;
    out.holder.owner = owner;
    out.origin = r.origin;
    return out;
}

result<lease_request> parse_lease_request(const http::request& r, const lockcore::config& protocol) {
    const auto parsed = http::parse_object_body(r);
    if (!parsed) return parsed.error();

    http::fault_list faults;
    const http::object_reader body(*parsed, "", faults);
    lease_request out = read_lease_request(body, r, protocol, faults);
    out.acquire.kept = r.media_type == 1;  // text/event-stream
    if (body.has("max_hold_ms") && !out.acquire.kept) {
        body.fault("max_hold_ms",
                   "limits only a lease that the gateway keeps (Accept: text/event-stream); leave it out otherwise");
    }
    if (!faults.empty()) return std::move(faults).to_failure();
    return out;
}

result<lease_request> parse_cancellation(const http::request& r, const lockcore::config& protocol) {
    const auto parsed = http::parse_object_body(r);
    if (!parsed) return parsed.error();
    http::fault_list faults;
    lease_request out = read_lease_request(http::object_reader(*parsed, "", faults), r, protocol, faults);
    if (!r.has_header("idempotency-key"))
        faults.add("Idempotency-Key", "is missing: it names the request that is cancelled");
    if (!faults.empty()) return std::move(faults).to_failure();
    return out;
}

result<std::chrono::milliseconds> parse_renewal(const http::request& r, const lockcore::config& protocol) {
    if (r.body.empty()) return protocol.default_ttl;
    const auto parsed = http::parse_object_body(r);
    if (!parsed) return parsed.error();
    http::fault_list faults;
    const http::object_reader body(*parsed, "", faults);
    body.refuse_unknown({"ttl_ms"});
    const auto ttl = read_ttl(body, protocol);
    if (!faults.empty()) return std::move(faults).to_failure();
    return ttl;
}

result<lockcore::lease_query> parse_lease_listing(std::string_view text, lockcore::cell_id cell) {
    http::fault_list faults;
    const http::query_reader query(text, {"resource_prefix", "limit", "cursor"}, faults);
    lockcore::lease_query out;
    out.prefix = query.text("resource_prefix").value_or("");
    if (!lockcore::resource_name::is_prefix(out.prefix))
        faults.add("resource_prefix", "is not the beginning of a resource's name");
    const std::string cursor(query.text("cursor").value_or(""));
    const auto parts = lockcore::split_cell(cursor);
    const auto after = parts ? lockcore::from_base64url(parts->name) : std::nullopt;
    out.after = after.value_or("");
    if (!after || (!out.after.empty() && !lockcore::is_page_position(out.after)))
        faults.add("cursor", "is not a next_cursor of the list of leases");
    out.limit = static_cast<std::size_t>(query.integer("limit", {1, limit_max}).value_or(100));
    if (!faults.empty()) return std::move(faults).to_failure();
    if (!cursor.empty() && parts->cell != cell) return http::other_cell_failure("The cursor", parts->cell, cell);
    return out;
}

std::string make_listing_cursor(const std::string& after, lockcore::cell_id cell) {
    std::string encoded;
    lockcore::append_base64url(encoded, std::as_bytes(std::span(after)));
    return lockcore::mark_cell(cell, encoded);
}

result<lockcore::resource_name> read_resource(const http::request& r, const http::query_reader& query) {
    const auto text = r.path_parameters.empty() ? query.text("resource") : std::optional(r.path_parameters.front());
    if (!text) return invalid_field("resource", "is missing");
    auto resource = lockcore::resource_name::parse(*text);
    if (!resource) return invalid_field("resource", resource.error().detail);
    return std::move(*resource);
}

result<operator_order> parse_operator_order(const http::request& r, operator_request kind) {
    http::fault_list faults;
    const http::query_reader query(r.query, {"resource"}, faults);
    const auto resource = read_resource(r, query);
    if (!resource) return resource.error();
    const auto allowed = r.rights->require(scope::operate, resource->str());
    if (!allowed) return allowed.error();
    const auto parsed = http::parse_object_body(r);
    if (!parsed) return parsed.error();
    const bool repairs = kind == operator_request::repair_fence;
    const std::string_view token_name = repairs ? "last_fencing_token" : "expected_token";
    const http::object_reader body(*parsed, "", faults);
    body.refuse_unknown({"reason", token_name});
    operator_order out{*resource, read_reason(body), {}};
    if (repairs && !body.has(token_name)) body.fault(token_name, "is missing");
    if (const auto token = body.integer(token_name, {repairs ? 0 : 1, lockcore::fencing_token_max + 1}))
        out.token = static_cast<std::uint64_t>(*token);
    if (!faults.empty()) return std::move(faults).to_failure();
    return out;
}

}  // namespace fencegate::api
