#include <gateway/api/leases/live_lease_requests.hpp>

#include <gateway/api/cell.hpp>
#include <gateway/api/resource_parameter.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/http/codec/query.hpp>

#include <lockcore/encoding.hpp>

#include <span>

namespace fencegate::api {
namespace {

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

result<lockcore::lease_query> parse_lease_listing(std::string_view text, lockcore::cell_id cell) {
    http::fault_list faults;
    const http::query_reader query(text, {"resource_prefix", "limit", "cursor"}, faults);
    lockcore::lease_query out;
    out.prefix = query.text("resource_prefix").value_or("");
    if (!lockcore::resource_name::is_prefix(out.prefix))
        faults.add("resource_prefix", "is not the beginning of a resource's name");
    const std::string cursor(query.text("cursor").value_or(""));
    const auto marked = lockcore::split_cell(cursor);
    const auto after = marked ? lockcore::from_base64url(marked->name) : std::nullopt;
    out.after = after.value_or("");
    if (!after || !lockcore::resource_name::is_prefix(out.after))
        faults.add("cursor", "is not a next_cursor of this gateway");
    out.limit = static_cast<std::size_t>(query.integer("limit", {1, limit_max}).value_or(100));
    if (!faults.empty()) return std::move(faults).to_failure();
    if (!cursor.empty() && marked->cell != cell) return other_cell_failure("The cursor", marked->cell, cell);
    return out;
}

std::string make_listing_cursor(const std::string& after, lockcore::cell_id cell) {
    std::string encoded;
    lockcore::append_base64url(encoded, std::as_bytes(std::span(after)));
    return lockcore::mark_cell(cell, encoded);
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
