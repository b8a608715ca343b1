#include <gateway/api/tables/table_request.hpp>

#include <gateway/api/tables/table_grammar.hpp>
#include <gateway/api/writes/idempotency.hpp>
#include <gateway/api/writes/write_body.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/json_io.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>

namespace fencegate::api {
namespace {

constexpr const char* embedding_refused = "has embedded tables, but embedding is for reads of tables";

/// Gives the embedded tables their parameters' prefix and their limit.
void prepare_embedded(std::vector<selected_column>& select, const std::string& prefix, std::int64_t rows_max) {
    for (auto& item : select) {
        if (!item.embedded) continue;
        item.embedded->pointer_prefix = prefix + item.alias + ".";
        item.embedded->rows.limit = rows_max;
        prepare_embedded(item.embedded->rows.select, item.embedded->pointer_prefix, rows_max);
    }
}

/// Reads the parameters of one query string, select first, because the names of others may begin with a name of it.
class parameter_reader {
  public:
    explicit parameter_reader(std::size_t rows_max) : rows_max_(static_cast<std::int64_t>(rows_max)) {
        out_.rows.limit = rows_max_;
    }

    void read(const std::string& name, const std::string& value, http::fault_list& faults) {
        const auto [rows, prefix] = selection_of(name);
        const auto part = std::string_view(name).substr(prefix);
        if (!is_reserved(part, prefix > 0)) {
            auto condition = parse_condition(name, value, faults, prefix);
            if (condition.pointer.empty()) return;  // a fault
            count(name, condition, faults);
            rows->where.push_back(std::move(condition));
        } else if (!out_.given.insert(name).second) {
            faults.add(name, "is given more than once");
        } else if (part == "select") {
            rows->select = parse_select(value, faults);
            prepare_embedded(rows->select, "", rows_max_);
        } else if (part == "order") {
            rows->order = parse_order(name, value, faults);
        } else if (part == "limit") {
            rows->limit = std::min(parse_count(name, value, faults).value_or(rows_max_), rows_max_);
        } else if (part == "offset") {
            rows->offset = parse_count(name, value, faults).value_or(0);
        } else if (part == "columns") {
            out_.columns = parse_names(name, value, faults);
        } else {  // the last of the reserved names
            out_.on_conflict = parse_names(name, value, faults);
        }
    }

    table_parameters take() { return std::move(out_); }

  private:
    static bool is_reserved(std::string_view name, bool embedded) {
        constexpr std::string_view words[] = {"order", "limit", "offset"};
        constexpr std::string_view outer[] = {"select", "on_conflict", "columns"};
        return std::ranges::find(words, name) != std::end(words) ||
               (!embedded && std::ranges::find(outer, name) != std::end(outer));
    }

    static std::optional<std::int64_t> parse_count(const std::string& name, const std::string& text,
                                                   http::fault_list& faults) {
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error == std::errc{} && end == text.data() + text.size() && value >= 0) return value;
        faults.add(name, "has to be an integer from 0 to 9223372036854775807");
        return std::nullopt;
    }

    /// Returns the selection that a parameter concerns, and where the rest of its name begins.
    std::pair<row_selection*, std::size_t> selection_of(std::string_view name) {
        auto* rows = &out_.rows;
        std::size_t begin = 0;
        while (true) {
            const auto dot = name.find('.', begin);
            if (dot == std::string_view::npos) return {rows, begin};
            const auto segment = name.substr(begin, dot - begin);
            const auto found = std::ranges::find_if(
                rows->select, [&](const auto& item) { return item.embedded && item.alias == segment; });
            if (found == rows->select.end()) return {rows, begin};
            rows = &found->embedded->rows;
            begin = dot + 1;
        }
    }

    void count(const std::string& name, const comparison& condition, http::fault_list& faults) {
        const auto before = std::exchange(conditions_, conditions_ + count_conditions(condition));
        if (before <= conditions_max && conditions_ > conditions_max)
            faults.add("query", "has more than 256 conditions");
        const auto bytes = std::exchange(pattern_bytes_, pattern_bytes_ + count_pattern_bytes(condition));
        if (bytes <= pattern_bytes_max && pattern_bytes_ > pattern_bytes_max)
            faults.add(name, "like and ilike accept patterns of at most 512 bytes in all");
    }

    table_parameters out_;
    std::int64_t rows_max_;
    std::size_t conditions_ = 0;
    std::size_t pattern_bytes_ = 0;
};

using named_text = std::pair<std::string, std::string>;

/// Returns the parameters, those named select before all others.
std::vector<named_text> sorted_parameters(const http::request& r, http::fault_list& faults) {
    auto out = http::query_parameters(r.query, faults);
    std::stable_partition(out.begin(), out.end(), [](const auto& given) { return given.first == "select"; });
    return out;
}

bool same_keys(const boost::json::object& a, const boost::json::object& b) {
    return a.size() == b.size() && std::ranges::all_of(a, [&](const auto& member) { return b.contains(member.key()); });
}

/// Returns the columns that an insert sets: those that the parameter `columns` names, else the keys of the row. A
/// column that is named and missing in the row gets NULL, or is left out.
std::vector<assignment> read_values(boost::json::object row, const std::string& pointer, const table_parameters& given,
                                    bool leaves_missing_out, http::fault_list& faults) {
    if (!given.columns) return take_assignments(row, pointer, faults);
    std::vector<assignment> out;
    for (const auto& name : *given.columns) {
        if (std::ranges::find(out, name, &assignment::name) != out.end()) {
            faults.add("columns", "names " + name + " twice");
            continue;
        }
        const auto* value = row.if_contains(name);
        if (!value && leaves_missing_out) continue;
        out.push_back(
            {name, value ? *value : boost::json::value(), value ? http::child_pointer(pointer, name) : "columns"});
    }
    return out;
}

/// Reads several rows. Without the parameter `columns` they need the keys of the first.
void read_rows(boost::json::array rows, std::size_t rows_max, const table_parameters& given, insert_operation& out,
               http::fault_list& faults) {
    if (rows.empty() || rows.size() > rows_max) {
        return faults.add("",
                          "the body has to be an object or an array of 1 to " + std::to_string(rows_max) + " objects");
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (!rows[i].is_object()) {
            faults.add(http::child_pointer("", i), "has to be an object");
        } else if (!given.columns && rows[0].is_object() && !same_keys(rows[0].get_object(), rows[i].get_object())) {
            faults.add(http::child_pointer("", i), "has other keys than the first row");
        }
    }
    if (!faults.empty()) return;
    // Of several rows the first one's values stand for all: a column that it lacks may be in another.
    const bool several = rows.size() > 1;
    const bool leaves_missing_out = out.missing_default && !several;
    out.values = read_values(rows[0].get_object(), "/0", given, leaves_missing_out, faults);
    if (several) out.rows = std::move(rows);
}

std::optional<conflict_rule> read_conflict(const preferences& preferred, const table_parameters& given,
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
    return out;
}

result<operation> read_table_insert(const http::request& r, const preferences& preferred, const table_parameters& given,
                                    std::size_t rows_max, write_call& call, http::fault_list& faults) {
    auto body = http::parse_body(r);
    if (!body) return std::move(body).error();
    if (!call.idempotency_key.empty()) call.fingerprint_text = fingerprint_text_of(*body);
    insert_operation out;
    out.table = r.path_parameters.front();
    refuse_parameters(given, {"order", "limit", "offset"}, faults);
    for (const auto& condition : given.rows.where)
        faults.add(condition.pointer, "is not a parameter of this method");
    out.on_conflict = read_conflict(preferred, given, faults);
    out.missing_default = preferred.missing_default;
    if (auto* rows = body->if_array()) {
        read_rows(std::move(*rows), rows_max, given, out, faults);
    } else if (auto* row = body->if_object()) {
        out.values = read_values(std::move(*row), "", given, out.missing_default, faults);
    } else {
        faults.add("", "the body has to be an object or an array of objects");
    }
    return operation(std::move(out));
}

void require_condition(const table_parameters& given, http::fault_list& faults) {
    refuse_parameters(given, {"order", "limit", "offset", "on_conflict", "columns"}, faults);
    if (given.rows.where.empty()) faults.add("query", "has no condition; a change of every row is refused");
}

result<operation> read_table_update(const http::request& r, table_parameters& given, write_call& call,
                                    http::fault_list& faults) {
    auto body = http::parse_object_body(r);
    if (!body) return std::move(body).error();
    if (!call.idempotency_key.empty()) call.fingerprint_text = fingerprint_text_of(*body);
    update_operation out;
    out.table = r.path_parameters.front();
    require_condition(given, faults);
    if (body->empty()) faults.add("", "the body has to name at least one column");
    out.set = take_assignments(*body, "", faults);
    out.where = std::move(given.rows.where);
    return operation(std::move(out));
}

operation read_table_delete(const http::request& r, table_parameters& given, http::fault_list& faults) {
    delete_operation out;
    out.table = r.path_parameters.front();
    require_condition(given, faults);
    out.where = std::move(given.rows.where);
    return out;
}

/// Translates a failure of the write's only operation into the fields of this request.
void translate_operation_failure(failure& f) {
    f.facts.erase("operation");
    std::erase_if(f.errors, [](const auto& error) { return error.pointer == "/operations/0"; });
    for (auto& error : f.errors) {
        constexpr std::string_view place = "/operations/0/";
        if (!error.pointer.starts_with(place)) continue;
        const auto part = error.pointer.substr(place.size());
        if (part == "insert" || part == "update" || part == "delete" || part == "call") {
            f.code = errc::not_found;
            f.detail = std::move(error.detail);
            f.errors.clear();
            return;
        }
        error.pointer.clear();
    }
}

/// Translates a refusal because of the number of rows.
void translate_row_failure(failure& f) {
    const auto rows = f.facts.at("rows_affected").to_number<std::int64_t>();
    const auto* most = f.facts.if_contains("max_affected");
    failure out =
        most ? too_many_rows(most->to_number<std::int64_t>(), rows) : not_one_row(rows, "nothing was changed");
    out.facts["write_id"] = f.facts["write_id"];
    out.replayed = f.replayed;
    out.in_history = f.in_history;
    f = std::move(out);
}

}  // namespace

table_parameters parse_parameters(const http::request& r, std::size_t rows_max, http::fault_list& faults) {
    parameter_reader reader(rows_max);
    for (const auto& [name, value] : sorted_parameters(r, faults))
        reader.read(name, value, faults);
    return reader.take();
}

void parse_function_parameters(const http::request& r, std::size_t rows_max, function_query& out,
                               http::fault_list& faults) {
    parameter_reader reader(rows_max);
    for (const auto& [name, value] : sorted_parameters(r, faults)) {
        http::fault_list own;
        reader.read(name, value, own);
        const auto repeated = std::ranges::find(out.parameters, name, &query_argument::name);
        query_argument given{name, value};
        if (!own.empty()) given.fault = std::move(own).to_failure().errors.front().detail;
        if (repeated != out.parameters.end() && (given.fault || repeated->fault))
            faults.add(name, "is given more than once");
        out.parameters.push_back(std::move(given));
    }
    auto parsed = reader.take();
    for (auto& given : out.parameters) {
        if (given.name == "on_conflict" || given.name == "columns") given.fault = "is not a parameter of this method";
        if (given.name == "select" && !embedded_names(parsed.rows.select).empty()) given.fault = embedding_refused;
    }
    out.rows = std::move(parsed.rows);
}

void refuse_parameters(const table_parameters& given, std::initializer_list<const char*> names,
                       http::fault_list& faults) {
    for (const char* name : names) {
        if (given.given.contains(name)) faults.add(name, "is not a parameter of this method");
    }
}

void refuse_embedding(const row_selection& rows, http::fault_list& faults) {
    if (!embedded_names(rows.select).empty()) faults.add("select", embedding_refused);
}

std::vector<std::string> embedded_names(const std::vector<selected_column>& select) {
    std::vector<std::string> out;
    for (const auto& item : select) {
        if (!item.embedded) continue;
        out.push_back(item.column);
        for (auto& name : embedded_names(item.embedded->rows.select))
            out.push_back(std::move(name));
    }
    return out;
}

void limit_rows(operation& op, const preferences& preferred, const answer_form& form) {
    std::visit(
        [&](auto& each) {
            if (form.single) each.expect_rows = 1;
            each.rows_max = preferred.max_affected;
        },
        op);
}

failure translate_write_failure(failure f) {
    if (f.code == errc::expectation_failed && f.facts.contains("rows_affected")) {
        translate_row_failure(f);
    } else {
        translate_operation_failure(f);
    }
    return with_postgrest_code(std::move(f));
}

result<table_query> parse_table_query(const http::request& r, const preferences& preferred, std::size_t rows_max) {
    http::fault_list faults;
    auto given = parse_parameters(r, rows_max, faults);
    refuse_parameters(given, {"on_conflict", "columns"}, faults);
    if (!faults.empty()) return std::move(faults).to_failure();
    table_query out;
    static_cast<row_selection&>(out) = std::move(given.rows);
    out.table = r.path_parameters.front();
    out.count = preferred.count;
    out.counted_max = static_cast<std::int64_t>(rows_max);
    return out;
}

result<write_call> parse_table_write(const http::request& r, const preferences& preferred, const answer_form& form,
                                     std::size_t rows_max) {
    http::fault_list faults;
    write_call out;
    out.idempotency_key = read_idempotency_key(r, faults);
    auto given = parse_parameters(r, rows_max, faults);
    refuse_embedding(given.rows, faults);
    result<operation> parsed = r.verb == http::method::post
                                   ? read_table_insert(r, preferred, given, rows_max, out, faults)
                               : r.verb == http::method::patch ? read_table_update(r, given, out, faults)
                                                               : result<operation>(read_table_delete(r, given, faults));
    if (!parsed) return parsed.error();
    if (!faults.empty()) return std::move(faults).to_failure();
    limit_rows(*parsed, preferred, form);
    out.lease_id = r.header("fencing-lease");
    out.operations.push_back(std::move(*parsed));
    out.return_rows = preferred.representation.value_or(false);
    out.select = std::move(given.rows.select);
    out.format = form.format;
    if (!form.is_default()) out.accepted_form = form.content_type;
    return out;
}

}  // namespace fencegate::api
