#include <gateway/api/writes/write_body.hpp>

#include <gateway/api/leases/lease_request.hpp>
#include <gateway/api/writes/fencing.hpp>
#include <gateway/api/writes/idempotency.hpp>
#include <gateway/api/writes/write_operations.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/json_io.hpp>

#include <boost/json/array.hpp>

#include <algorithm>
#include <utility>

namespace fencegate::api {
namespace {

constexpr std::size_t lease_id_bytes_max = 8 * 1024;

std::string read_lease_id(const http::object_reader& body, const http::request& r, http::fault_list& faults) {
    const std::string_view in_header = r.header("fencing-lease");
    const std::string_view in_body = body.text("lease_id", lease_id_bytes_max).value_or("");
    if (!in_header.empty() && !in_body.empty() && in_header != in_body) {
        body.fault("lease_id", "differs from the header Fencing-Lease");
    }
    if (in_header.size() > lease_id_bytes_max) faults.add("Fencing-Lease", "is longer than a lease_id can be");
    return std::string(in_body.empty() ? in_header : in_body);
}

/// Reads the lease to acquire for this write alone; empty if the body asks for none.
std::optional<lockcore::acquire_request> read_own_lease(const http::object_reader& body, const http::request& r,
                                                        const lockcore::config& limits, http::fault_list& faults) {
    if (!body.has("lease")) return std::nullopt;
    if (body.has("lease_id") || has_fencing_headers(r)) {
        body.fault("lease", "is given together with a lease_id or a token; give only one of them");
    }
    const auto* object = body.object("lease");
    if (object == nullptr) return std::nullopt;
    const std::string pointer = body.pointer_to("lease");
    const http::object_reader fields(*object, pointer, faults);
    fields.refuse_unknown({"resource", "resources", "ttl_ms", "wait_ms", "owner"});
    return read_wanted_lease(fields, r, limits, faults);
}

bool read_then(const http::object_reader& body) {
    const auto given = body.text("then", 16);
    if (given && *given != "release") body.fault("then", "has to be \"release\"");
    return given.has_value();
}

bool read_return(const http::object_reader& body) {
    const auto given = body.text("return", 16);
    if (given && *given != "rows" && *given != "minimal") body.fault("return", "has to be \"rows\" or \"minimal\"");
    return given == "rows";
}

/// Returns what a repeat has to have too. It may use another lease, and come from another process: of its own lease only
/// the resources count.
std::string make_fingerprint_text(boost::json::object body, const std::optional<lockcore::acquire_request>& own_lease) {
    body.erase("lease_id");
    if (own_lease) {
        auto resources = own_lease->resources;
        std::ranges::sort(resources);
        boost::json::array names;
        for (const auto& resource : resources)
            names.emplace_back(boost::json::string_view(resource.str()));
        body["lease"] = std::move(names);
    }
    return fingerprint_text_of(body);
}

}  // namespace

result<write_call> parse_write_body(const http::request& r, const lockcore::config& limits) {
    auto parsed = http::parse_object_body(r);
    if (!parsed) return parsed.error();
    http::fault_list faults;

    const http::object_reader body(*parsed, "", faults);
    body.refuse_unknown({"lease_id", "operations", "return", "require_live", "then", "lease"});
    write_call out;
    out.lease_id = read_lease_id(body, r, faults);
    out.own_lease = read_own_lease(body, r, limits, faults);
    out.then_release = read_then(body);
    out.idempotency_key = read_idempotency_key(r, faults);
    if (!out.idempotency_key.empty()) out.fingerprint_text = make_fingerprint_text(*parsed, out.own_lease);
    out.return_rows = read_return(body);
    out.require_live = body.boolean("require_live").value_or(false);
    if (boost::json::value* operations = parsed->if_contains("operations")) {
        out.operations = read_operations(*operations, body.pointer_to("operations"), faults);
    } else {
        body.fault("operations", "is missing");
    }
    if (!faults.empty()) return std::move(faults).to_failure();
    return out;
}

}  // namespace fencegate::api
