// The grammar of tables, down to the SQL. The first line is the query string,
// the second the header Prefer, the rest the body.
#include "fuzz.hpp"
#include "sql_check.hpp"

#include <gateway/api/tables/answer_form.hpp>
#include <gateway/api/tables/table_grammar.hpp>
#include <gateway/api/tables/table_request.hpp>
#include <gateway/pg/read/table_reader.hpp>
#include <gateway/pg/write/write_sql.hpp>

#include <string>

namespace fencegate::fuzz {
namespace {

constexpr std::size_t rows_max = 100;

void check_conditions(const std::vector<comparison>& conditions) {
    std::size_t count = 0;
    std::size_t pattern_bytes = 0;
    for (const auto& condition : conditions) {
        count += api::count_conditions(condition);
        pattern_bytes += api::count_pattern_bytes(condition);
    }
    require(count <= api::conditions_max, "the number of conditions is bounded");
    require(pattern_bytes <= api::pattern_bytes_max, "the size of patterns is bounded");
}

/// Checks the limits of embedded tables, whose selections have the conditions that the request gives them.
void check_embedded(const std::vector<selected_column>& select, std::size_t depth) {
    require(depth <= api::embedding_depth_max, "the nesting of embedded tables is bounded");
    for (const auto& item : select) {
        if (!item.embedded) continue;
        const auto& rows = item.embedded->rows;
        require(rows.limit >= 0 && rows.limit <= static_cast<std::int64_t>(rows_max) && rows.offset >= 0,
                "limit and offset of embedded rows are within their bounds");
        check_conditions(rows.where);
        check_embedded(rows.select, depth + 1);
    }
}

void check_plan(const read_request& request) {
    const auto plan = pg::build_read(shop_catalog(), request);
    if (!plan.faults.empty()) return;
    check_statement(plan.sql);
    check_statement(plan.estimate);
}

void check_function(const http::request& request, row_format format) {
    function_query query;
    http::fault_list faults;
    api::parse_function_parameters(request, rows_max, query, faults);
    if (!faults.empty()) return;
    query.function = "list";
    query.limit = rows_max;
    query.count = true;
    check_plan({query, std::nullopt, {}, format});
}

void check_read(const http::request& request, const api::preferences& preferred) {
    const auto query = api::parse_table_query(request, preferred, rows_max);
    if (!query) return require(query.error().errors.size() <= field_errors_max, "the number of faults is bounded");
    require(query->limit >= 0 && query->limit <= static_cast<std::int64_t>(rows_max) && query->offset >= 0,
            "limit and offset are within their bounds");
    check_conditions(query->where);
    check_embedded(query->select, 0);
    require(api::embedded_names(query->select).size() <= api::embedded_tables_max, "embedded tables are bounded");
    for (const auto format : {row_format::json, row_format::json_without_nulls, row_format::csv})
        check_plan({*query, std::nullopt, {}, format});
}

void check_write(const http::request& request, const api::preferences& preferred) {
    const auto call = api::parse_table_write(request, preferred, {}, rows_max);
    if (!call) return require(call.error().errors.size() <= field_errors_max, "the number of faults is bounded");
    require(call->operations.size() == 1, "a request to a table is one operation");
    if (const auto* change = std::get_if<update_operation>(&call->operations.front())) {
        require(!change->where.empty(), "a change of every row is refused");
        check_conditions(change->where);
    }
    if (const auto* removal = std::get_if<delete_operation>(&call->operations.front())) {
        require(!removal->where.empty(), "a deletion of every row is refused");
        check_conditions(removal->where);
    }
    const auto plan =
        pg::build_statements(shop_catalog(), call->operations, {call->return_rows, call->select, call->format});
    if (!plan.faults.empty()) return;
    for (const auto& operation : plan.operations)
        check_statement(operation.sql);
}

}  // namespace

void run_input(std::string_view input) {
    http::request request;
    request.path_parameters = {"inventory"};
    request.query = take_line(input);
    request.headers.emplace_back("prefer", std::string(take_line(input)));
    request.headers.emplace_back("content-type", "application/json");
    request.body = input;
    const auto preferred = api::parse_preferences(request);
    request.verb = http::method::get;
    check_read(request, preferred);
    check_function(request, row_format::csv);
    for (const auto verb : {http::method::post, http::method::patch, http::method::del}) {
        request.verb = verb;
        check_write(request, preferred);
    }
}

}  // namespace fencegate::fuzz
