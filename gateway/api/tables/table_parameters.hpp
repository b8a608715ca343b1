#pragma once

#include <gateway/domain/table_read.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/message.hpp>

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::api {

/// The parameters of a request to a table or a function.
struct table_parameters {
    row_selection rows;  ///< `limit` is at most the limit of the configuration.
    std::optional<std::vector<std::string>> on_conflict;
    std::optional<std::vector<std::string>> columns;
    std::set<std::string> given;  ///< Names of the parameters that are not conditions.
};

/// Parses a query string. A parameter whose name begins with the name of an embedded table, such as `orders.limit`,
/// concerns that table.
///
/// Limits: conditions_max, pattern_bytes_max, those of parse_select.
table_parameters parse_parameters(const http::request& r, std::size_t rows_max, http::fault_list& faults);

/// Parses the query string of a function that is read by GET. A parameter may be an argument or a part of `rows`, which
/// only the catalog can tell, so that a fault as a part of `rows` is one of query_argument.
void parse_function_parameters(const http::request& r, std::size_t rows_max, function_query& out,
                               http::fault_list& faults);

/// Adds a fault for each of the names that is given.
void refuse_parameters(const table_parameters& given, std::initializer_list<const char*> names,
                       http::fault_list& faults);

/// Adds a fault if the selection has embedded tables.
void refuse_embedding(const row_selection& rows, http::fault_list& faults);

/// Returns the names of all embedded tables.
std::vector<std::string> embedded_names(const std::vector<selected_column>& select);

}  // namespace fencegate::api
