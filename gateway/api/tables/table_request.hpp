#pragma once

#include <gateway/api/tables/answer_form.hpp>
#include <gateway/api/writes/write_body.hpp>
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

/// Parses GET /v1/tables/{table}. The query's limit is at most `rows_max`.
///
/// Errors: errc::invalid_request with every faulty parameter.
result<table_query> parse_table_query(const http::request& r, const preferences& preferred, std::size_t rows_max);

/// Parses POST, PATCH or DELETE /v1/tables/{table} as a write of one operation. The header Fencing-Lease gives the
/// lease_id.
///
/// In:     POST: an object, or an array of at most `rows_max` objects, with the same keys unless the parameter
///         `columns` names those that count. PATCH: an object.
/// Errors: errc::invalid_request with every faulty parameter and field, also for PATCH and DELETE without a condition ·
///         errc::unsupported_media_type.
result<write_call> parse_table_write(const http::request& r, const preferences& preferred, const answer_form& form,
                                     std::size_t rows_max);

/// Gives an operation the number of rows that the request allows it to affect or return.
void limit_rows(operation& op, const preferences& preferred, const answer_form& form);

/// Translates a failure of a write of one operation into the fields of a request to a table or function: a number of
/// rows that Accept or Prefer does not allow, an unknown table or function.
failure translate_write_failure(failure f);

}  // namespace fencegate::api
