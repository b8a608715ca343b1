#include <gateway/api/writes/write_body.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/leases/lease_request.hpp>
#include <gateway/api/writes/idempotency.hpp>
#include <gateway/domain/exact_number.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/json_io.hpp>

#include <boost/json/array.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_set>
#include <utility>

namespace fencegate::api {
namespace {

using boost::json::object;
using boost::json::value;
using http::fault_list;
using http::object_reader;

/// Maximum number of names in one object: as many as a table of PostgreSQL can have columns.
constexpr std::size_t names_max = 1'600;
constexpr std::size_t in_values_max = 10'000;

std::string_view key_of(const boost::json::key_value_pair& member) {
    return {member.key().data(), member.key().size()};
}

/// Returns whether an object has only names that a column or argument can have. Faults: too many names, an empty one,
/// one that is too long.
bool has_valid_names(const object& given, const std::string& pointer, fault_list& faults) {
    if (given.size() > names_max) {
        faults.add(pointer, "has more than " + std::to_string(names_max) + " names");
        return false;
    }
    bool valid = true;
    for (const auto& member : given) {
        if (!member.key().empty() && member.key().size() <= name_bytes_max) continue;
        faults.add(http::child_pointer(pointer, key_of(member)),
                   "is a name that does not have 1 to " + std::to_string(name_bytes_max) + " bytes");
        valid = false;
    }
    return valid;
}

bool is_truth_value(const value& v) {
    return v.is_null() || v.is_bool() || (v.is_string() && v.get_string() == "unknown");
}

void check_operand(comparison_operator op, const value& operand, const std::string& pointer, fault_list& faults) {
    switch (op) {
        case comparison_operator::is:
            if (!is_truth_value(operand)) faults.add(pointer, "is takes null, true, false or \"unknown\"");
            return;
        case comparison_operator::in: {
            const boost::json::array* items = operand.if_array();
            if (items == nullptr || items->empty() || items->size() > in_values_max) {
                faults.add(pointer, "in takes an array of 1 to 10000 values");
            } else if (std::ranges::any_of(*items, [](const value& v) { return v.is_null(); })) {
                faults.add(pointer, "null never matches; use {\"is\": null}");
            }
            return;
        }
        case comparison_operator::eq:
        case comparison_operator::neq:
        case comparison_operator::lt:
        case comparison_operator::lte:
        case comparison_operator::gt:
        case comparison_operator::gte:
            if (operand.is_null()) faults.add(pointer, "null never matches; use {\"is\": null}");
            return;
        case comparison_operator::like:
        case comparison_operator::ilike:
        case comparison_operator::all_of:
        case comparison_operator::any_of:
            return;  // not among the operators of a body
    }
}

/// Reads the conditions of one column: `{"gte": 3, "lt": 9}`.
void read_operators(std::string_view column, object& given, const std::string& pointer, fault_list& faults,
                    std::vector<comparison>& out) {
    if (given.empty()) faults.add(pointer, "has to name an operator");
    for (auto& member : given) {
        std::string member_pointer = http::child_pointer(pointer, key_of(member));
        const auto known = find_operator(key_of(member));
        if (!known || *known == comparison_operator::like || *known == comparison_operator::ilike) {
            faults.add(std::move(member_pointer), "is no operator; there are eq, neq, lt, lte, gt, gte, in and is");
            continue;
        }
        check_operand(*known, member.value(), member_pointer, faults);
        out.push_back({std::string(column), *known, std::move(member.value()), std::move(member_pointer)});
    }
}

std::vector<comparison> read_where(object& operation, const object_reader& reader, std::string_view verb,
                                   fault_list& faults) {
    std::vector<comparison> out;
    value* given = operation.if_contains("where");
    const std::string pointer = reader.pointer_to("where");
    if (given == nullptr || (given->is_object() && given->get_object().empty())) {
        faults.add(pointer, "is missing; " + std::string(verb == "delete" ? "a delete" : "an update") +
                                " of every row is refused");
        return out;
    }
    if (!given->is_object()) {
        faults.add(pointer, "has to be an object of columns and their conditions");
        return out;
    }
    if (!has_valid_names(given->get_object(), pointer, faults)) return out;
    for (auto& member : given->get_object()) {
        std::string member_pointer = http::child_pointer(pointer, key_of(member));
        value& condition = member.value();
        if (condition.is_object()) {
            read_operators(key_of(member), condition.get_object(), member_pointer, faults, out);
        } else if (condition.is_array()) {
            faults.add(std::move(member_pointer), "is an array; use {\"in\": […]} for several values");
        } else {
            check_operand(comparison_operator::eq, condition, member_pointer, faults);
            out.push_back({std::string(key_of(member)), comparison_operator::eq, std::move(condition),
                           std::move(member_pointer)});
        }
    }
    return out;
}

std::vector<assignment> read_assignments(object& operation, const object_reader& reader, std::string_view field,
                                         fault_list& faults) {
    value* given = operation.if_contains({field.data(), field.size()});
    if (given == nullptr) return {};
    const std::string pointer = reader.pointer_to(field);
    if (given->is_object()) return take_assignments(given->get_object(), pointer, faults);
    faults.add(pointer, "has to be an object of names and values");
    return {};
}

std::optional<std::int64_t> read_expect_rows(const object_reader& reader) {
    return reader.integer("expect_rows", {0, std::numeric_limits<std::int64_t>::max()});
}

std::string read_name(const object_reader& reader, std::string_view verb) {
    return std::string(reader.text(verb, name_bytes_max).value_or(""));
}

update_operation read_update(object& given, const object_reader& reader, fault_list& faults) {
    reader.refuse_unknown({"update", "where", "add", "set", "expect_rows"});
    update_operation out;
    out.table = read_name(reader, "update");
    out.where = read_where(given, reader, "update", faults);
    out.add = read_assignments(given, reader, "add", faults);
    out.set = read_assignments(given, reader, "set", faults);
    out.expect_rows = read_expect_rows(reader);
    std::unordered_set<std::string_view> names_set;
    for (const assignment& a : out.set)
        names_set.insert(a.name);
    for (const assignment& a : out.add) {
        // An interval is added as a string; the database checks it.
        if (!is_json_number(a.value) && !a.value.is_string())
            faults.add(a.pointer, "add takes a number, or a string such as an interval");
        if (names_set.contains(a.name)) faults.add(a.pointer, "is in set too; a column can be changed only once");
    }
    const auto is_absent = [&](std::string_view name) {
        const value* named = reader.find(name);
        return named == nullptr || (named->is_object() && named->get_object().empty());
    };
    if (is_absent("add") && is_absent("set"))
        faults.add(reader.pointer_to("set"), "is missing; an update needs set or add");
    return out;
}

insert_operation read_insert(object& given, const object_reader& reader, fault_list& faults) {
    reader.refuse_unknown({"insert", "values", "expect_rows"});
    insert_operation out;
    out.table = read_name(reader, "insert");
    if (!reader.has("values")) reader.fault("values", "is missing; {} inserts a row of defaults");
    out.values = read_assignments(given, reader, "values", faults);
    out.expect_rows = read_expect_rows(reader);
    return out;
}

delete_operation read_delete(object& given, const object_reader& reader, fault_list& faults) {
    reader.refuse_unknown({"delete", "where", "expect_rows"});
    delete_operation out;
    out.table = read_name(reader, "delete");
    out.where = read_where(given, reader, "delete", faults);
    out.expect_rows = read_expect_rows(reader);
    return out;
}

call_operation read_call(object& given, const object_reader& reader, fault_list& faults) {
    reader.refuse_unknown({"call", "args"});
    call_operation out;
    out.function = read_name(reader, "call");
    out.args = read_assignments(given, reader, "args", faults);
    return out;
}

void read_operation(value& given, const std::string& pointer, fault_list& faults, std::vector<operation>& out) {
    object* members = given.if_object();
    if (members == nullptr) {
        faults.add(pointer, "has to be an object");
        return;
    }
    const object_reader reader(*members, pointer, faults);
    const std::array<std::string_view, 4> verbs{"update", "insert", "delete", "call"};
    const auto count = std::ranges::count_if(verbs, [&](std::string_view verb) { return reader.has(verb); });
    if (count != 1) {
        faults.add(pointer, "has to have exactly one of update, insert, delete and call");
    } else if (reader.has("update")) {
        out.emplace_back(read_update(*members, reader, faults));
    } else if (reader.has("insert")) {
        out.emplace_back(read_insert(*members, reader, faults));
    } else if (reader.has("delete")) {
        out.emplace_back(read_delete(*members, reader, faults));
    } else {
        out.emplace_back(read_call(*members, reader, faults));
    }
}

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
                                                        const lockcore::config& protocol, http::fault_list& faults) {
    if (!body.has("lease")) return std::nullopt;
    if (body.has("lease_id") || has_fencing_headers(r)) {
        body.fault("lease", "is given together with a lease_id or a token; give only one of them");
    }
    const auto* object = body.object("lease");
    if (object == nullptr) return std::nullopt;
    const std::string pointer = body.pointer_to("lease");
    const http::object_reader fields(*object, pointer, faults);
    fields.refuse_unknown({"resource", "resources", "ttl_ms", "wait_ms", "owner"});
    return read_wanted_lease(fields, r, protocol, faults);
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

/// Returns what a repeat has to have too. It may use another lease, and come from another process: of its own lease
/// only the resources count.
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

void append_result(std::string& out, const operation_result& result) {
    http::object_writer item(out);
    if (result.is_call) {
        item.raw("value", result.json.empty() ? "null" : result.json);
    } else {
        item.number("rows_affected", result.rows_affected);
        if (!result.json.empty()) item.raw("rows", result.json);
    }
    item.end();
}

}  // namespace

std::optional<comparison_operator> find_operator(std::string_view name) {
    using enum comparison_operator;
    constexpr std::array<std::pair<std::string_view, comparison_operator>, 10> operators{{{"eq", eq},
                                                                                          {"neq", neq},
                                                                                          {"lt", lt},
                                                                                          {"lte", lte},
                                                                                          {"gt", gt},
                                                                                          {"gte", gte},
                                                                                          {"like", like},
                                                                                          {"ilike", ilike},
                                                                                          {"in", in},
                                                                                          {"is", is}}};
    for (const auto& [known, op] : operators) {
        if (known == name) return op;
    }
    return std::nullopt;
}

std::vector<assignment> take_assignments(object& given, const std::string& pointer, fault_list& faults) {
    std::vector<assignment> out;
    if (!has_valid_names(given, pointer, faults)) return out;
    out.reserve(given.size());
    for (auto& member : given)
        out.push_back(
            {std::string(key_of(member)), std::move(member.value()), http::child_pointer(pointer, key_of(member))});
    return out;
}

std::vector<operation> read_operations(value& given, const std::string& pointer, fault_list& faults) {
    std::vector<operation> out;
    boost::json::array* items = given.if_array();
    if (items == nullptr || items->empty() || items->size() > operations_max) {
        faults.add(pointer, "has to be an array of 1 to " + std::to_string(operations_max) + " operations");
        return out;
    }
    out.reserve(items->size());
    for (std::size_t i = 0; i < items->size(); ++i) {
        read_operation((*items)[i], http::child_pointer(pointer, i), faults, out);
    }
    return out;
}

result<write_call> parse_write_body(const http::request& r, const lockcore::config& protocol) {
    auto parsed = http::parse_object_body(r);
    if (!parsed) return parsed.error();
    http::fault_list faults;

    const http::object_reader body(*parsed, "", faults);
    body.refuse_unknown({"lease_id", "operations", "return", "require_live", "then", "lease"});
    write_call out;
    out.lease_id = read_lease_id(body, r, faults);
    out.own_lease = read_own_lease(body, r, protocol, faults);
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

std::string render_write(const write_report& report) {
    const write_outcome& outcome = report.outcome;
    std::size_t size = 256;
    for (const auto& result : outcome.results)
        size += 48 + result.json.size();
    std::string text;
    text.reserve(size);
    http::object_writer out(text);
    out.boolean("applied", true).text("write_id", outcome.write_id);
    if (report.own_lease) out.number("fencing_token", lockcore::value_of(outcome.token));
    out.key("fences");
    text += '[';
    for (const fence_state& fence : outcome.fences) {
        if (&fence != outcome.fences.data()) text += ',';
        http::object_writer item(text);
        item.text("resource", fence.resource).number("fencing_token", lockcore::value_of(outcome.token));
        item.number("last_fencing_token", fence.last_fencing_token).end();
    }
    text += ']';
    out.key("results");
    text += '[';
    for (const operation_result& result : outcome.results) {
        if (&result != outcome.results.data()) text += ',';
        append_result(text, result);
    }
    text += ']';
    if (outcome.rows_left_out) out.boolean("rows_left_out", true);
    if (report.release) {
        out.boolean("released", report.release->released);
        if (!outcome.sealed) out.boolean("sealed", false);
        if (report.release->holds_left > 0) out.number("hold_count", report.release->holds_left);
    }
    out.end();
    return text;
}

}  // namespace fencegate::api
