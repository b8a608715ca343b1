// What PostgreSQL answers about exposed tables: names and types of the operator's choice.
// The first line is the columns as JSON, the second the operations, the rest a query string.
#include "fuzz.hpp"
#include "sql_check.hpp"

#include <gateway/api/tables/table_request.hpp>
#include <gateway/pg/catalog/catalog_field.hpp>
#include <gateway/pg/read/table_reader.hpp>

#include <exception>
#include <string>

namespace fencegate::fuzz {
namespace {

/// Types and schemas are PostgreSQL's own texts, which it has quoted.
bool is_quoted_by_postgresql(const pg::catalog_field& field) {
    constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyz_ ,()0123456789[].\"";
    const auto has_only_plain = [&](std::string_view text) {
        return text.find_first_not_of(plain) == std::string_view::npos && text.find('"') == std::string_view::npos;
    };
    return has_only_plain(field.type) && has_only_plain(field.base) && has_only_plain(field.operators);
}

}  // namespace

void run_input(std::string_view input) {
    pg::catalog known;
    auto& table = known.tables["t"];
    table.target = "public.t";
    try {
        table.columns = pg::parse_catalog_fields(take_line(input));
        table.operations = pg::parse_catalog_operations(take_line(input));
    } catch (const std::exception&) {
        return;  // what the caller of a reload logs
    }
    for (const auto& column : table.columns) {
        if (!is_quoted_by_postgresql(column)) return;
    }
    http::request request;
    request.path_parameters = {"t"};
    request.query = input;
    const auto query = api::parse_table_query(request, {}, 100);
    if (!query) return;
    const auto plan = pg::build_read(known, {*query, std::nullopt});
    if (plan.faults.empty()) check_statement(plan.sql);
}

}  // namespace fencegate::fuzz
