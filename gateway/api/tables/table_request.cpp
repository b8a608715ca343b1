#include <gateway/api/tables/table_request.hpp>

#include <gateway/api/tables/table_grammar.hpp>
#include <gateway/api/writes/idempotency.hpp>
#include <gateway/api/writes/write_operations.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/http/codec/json_pointer.hpp>
#include <gateway/http/codec/query.hpp>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <set>
#include <utility>

namespace fencegate::api {
namespace {

/// The parameters of a request to a table.
struct parameters {
    std::vector<selected_column> select;
    std::vector<comparison> where;
    std::vector<sort_key> order;
    std::optional<std::int64_t> limit;
    std::optional<std::int64_t> offset;
    std::optional<std::vector<std::string>> on_conflict;
    std::set<std::string> given;  ///< Names of the parameters that are not conditions.
};

std::optional<std::int64_t> parse_count(const std::string& name, const std::string& text, http::fault_list& faults) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc{} && end == text.data() + text.size() && value >= 0) return value;
    faults.add(name, "has to be an integer from 0");
    return std::nullopt;
}

bool is_reserved(std::string_view name) {
    constexpr std::string_view words[] = {"select", "order", "limit", "offset", "on_conflict"};
    return std::ranges::find(words, name) != std::end(words);
}

parameters parse_parameters(const http::request& r, http::fault_list& faults) {
    parameters out;
    std::size_t conditions = 0;
    std::size_t patterns = 0;
    for (const auto& [name, value] : http::query_parameters(r.query, faults)) {
        if (!is_reserved(name)) {
            out.where.push_back(parse_condition(name, value, faults));
            conditions += count_conditions(out.where.back());
            const auto before = std::exchange(patterns, patterns + count_pattern_bytes(out.where.back()));
            if (before <= pattern_bytes_max && patterns > pattern_bytes_max)
                faults.add(name, "like and ilike accept patterns of at most 512 bytes in all");
        } else if (!out.given.insert(name).second) {
            faults.add(name, "is given more than once");
        } else if (name == "select") {
            out.select = parse_select(value, faults);
        } else if (name == "order") {
            out.order = parse_order(value, faults);
        } else if (name == "limit") {
            out.limit = parse_count(name, value, faults);
        } else if (name == "offset") {
            out.offset = parse_count(name, value, faults);
        } else {
            out.on_conflict = parse_names(name, value, faults);
        }
    }
    if (conditions > conditions_max) faults.add("query", "has more than 256 conditions");
    return out;
}

void refuse(const parameters& given, std::initializer_list<const char*> names, http::fault_list& faults) {
    for (const char* name : names) {
        if (given.given.contains(name)) faults.add(name, "is not a parameter of this method");
    }
}

bool same_keys(const boost::json::object& a, const boost::json::object& b) {
    return a.size() == b.size() && std::ranges::all_of(a, [&](const auto& member) { return b.contains(member.key()); });
}

/// Reads several rows, which need the columns of the first.
void read_rows(boost::json::array rows, std::size_t rows_max, insert_operation& out, http::fault_list& faults) {
    if (rows.empty() || rows.size() > rows_max) {
        return faults.add("",
                          "the body has to be an object or an array of 1 to " + std::to_string(rows_max) + " objects");
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (!rows[i].is_object()) {
            faults.add(http::child_pointer("", i), "has to be an object");
        } else if (rows[0].is_object() && !same_keys(rows[0].get_object(), rows[i].get_object())) {
            faults.add(http::child_pointer("", i), "has other keys than the first row");
        }
    }
    if (!faults.empty()) return;
    if (rows.size() == 1) {
        out.values = take_assignments(rows[0].get_object(), "/0", faults);
        return;
    }
    auto first = rows[0].get_object();
    out.values = take_assignments(first, "/0", faults);
    out.rows = std::move(rows);
}

std::optional<conflict_rule> read_conflict(const preferences& preferred, const parameters& given,
                                           http::fault_list& faults) {
    if (preferred.resolution == conflict_resolution::none) {
        if (given.on_conflict)
            faults.add("on_conflict", "needs Prefer: resolution=merge-duplicates or ignore-duplicates");
        return std::nullopt;
    }
    conflict_rule out;
    out.pointer = "on_conflict";
    out.replace = preferred.resolution == conflict_resolution::merge;
    if (given.on_conflict) out.columns = *given.on_conflict;
    if (out.replace && out.columns.empty() && faults.empty()) {
        faults.add("on_conflict", "has to name the columns of a unique index, which identify a row");
    }
    return out;
}

result<operation> read_insert(const http::request& r, const preferences& preferred, const parameters& given,
                              std::size_t rows_max, http::fault_list& faults) {
    auto body = http::parse_body(r);
    if (!body) return std::move(body).error();
    insert_operation out;
    out.table = r.path_parameters.front();
    refuse(given, {"order", "limit", "offset"}, faults);
    for (const auto& condition : given.where)
        faults.add(condition.pointer, "is not a parameter of this method");
    out.on_conflict = read_conflict(preferred, given, faults);
    if (auto* rows = body->if_array()) {
        read_rows(std::move(*rows), rows_max, out, faults);
    } else if (auto* row = body->if_object()) {
        out.values = take_assignments(*row, "", faults);
    } else {
        faults.add("", "the body has to be an object or an array of objects");
    }
    return operation(std::move(out));
}

void require_condition(const parameters& given, http::fault_list& faults) {
    refuse(given, {"order", "limit", "offset", "on_conflict"}, faults);
    if (given.where.empty()) faults.add("query", "has no condition; a change of every row is refused");
}

result<operation> read_update(const http::request& r, parameters& given, http::fault_list& faults) {
    auto body = http::parse_object_body(r);
    if (!body) return std::move(body).error();
    update_operation out;
    out.table = r.path_parameters.front();
    require_condition(given, faults);
    if (body->empty()) faults.add("", "the body has to name at least one column");
    out.set = take_assignments(*body, "", faults);
    out.where = std::move(given.where);
    return operation(std::move(out));
}

operation read_delete(const http::request& r, parameters& given, http::fault_list& faults) {
    delete_operation out;
    out.table = r.path_parameters.front();
    require_condition(given, faults);
    out.where = std::move(given.where);
    return out;
}

/// Translates a failure of the write's only operation into the fields of this request.
void translate_failure(failure& f) {
    f.facts.erase("operation");
    std::erase_if(f.errors, [](const auto& error) { return error.pointer == "/operations/0"; });
    for (auto& error : f.errors) {
        constexpr std::string_view place = "/operations/0/";
        if (!error.pointer.starts_with(place)) continue;
        const auto part = error.pointer.substr(place.size());
        if (part == "insert" || part == "update" || part == "delete") {
            f.code = errc::not_found;
            f.detail = std::move(error.detail);
            f.errors.clear();
            return;
        }
        error.pointer.clear();
    }
}

}  // namespace

result<table_query> parse_table_query(const http::request& r, const preferences& preferred, std::size_t rows_max) {
    http::fault_list faults;
    auto given = parse_parameters(r, faults);
    refuse(given, {"on_conflict"}, faults);
    if (!faults.empty()) return std::move(faults).to_failure();
    table_query out;
    out.table = r.path_parameters.front();
    out.select = std::move(given.select);
    out.where = std::move(given.where);
    out.order = std::move(given.order);
    const auto most = static_cast<std::int64_t>(rows_max);
    out.limit = std::min(given.limit.value_or(most), most);
    out.offset = given.offset.value_or(0);
    out.count = preferred.count;
    return out;
}

result<write_call> parse_table_write(const http::request& r, const preferences& preferred, std::size_t rows_max) {
    http::fault_list faults;
    auto key = read_idempotency_key(r, faults);
    auto given = parse_parameters(r, faults);
    result<operation> parsed = r.verb == http::method::post    ? read_insert(r, preferred, given, rows_max, faults)
                               : r.verb == http::method::patch ? read_update(r, given, faults)
                                                               : result<operation>(read_delete(r, given, faults));
    if (!parsed) return parsed.error();
    if (!faults.empty()) return std::move(faults).to_failure();
    write_call out;
    out.lease_id = r.header("fencing-lease");
    out.idempotency_key = std::move(key);
    out.operations.push_back(std::move(*parsed));
    out.return_rows = preferred.representation;
    out.select = std::move(given.select);
    out.translate_failure = translate_failure;
    return out;
}

}  // namespace fencegate::api
