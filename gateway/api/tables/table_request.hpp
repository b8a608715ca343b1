#pragma once

#include <gateway/api/tables/answer_form.hpp>
#include <gateway/api/writes/guarded_write.hpp>
#include <gateway/domain/table_read.hpp>

#include <cstddef>

namespace fencegate::api {

/// Parses GET /v1/tables/{table}. The query's limit is at most `rows_max`.
///
/// Errors: errc::invalid_request with every faulty parameter.
result<table_query> parse_table_query(const http::request& r, const preferences& preferred, std::size_t rows_max);

/// Parses POST, PATCH or DELETE /v1/tables/{table} as a write of one operation. The header Fencing-Lease gives the
/// lease_id.
///
/// In:     POST: an object, or an array of at most `rows_max` objects, with the same keys unless the parameter `columns`
///         names those that count. PATCH: an object.
/// Errors: errc::invalid_request with every faulty parameter and field, also for PATCH and DELETE without a condition ·
///         errc::unsupported_media_type.
result<write_call> parse_table_write(const http::request& r, const preferences& preferred, const answer_form& form,
                                     std::size_t rows_max);

/// Gives an operation the number of rows that the request allows it to affect or return.
void limit_rows(operation& op, const preferences& preferred, const answer_form& form);

/// Translates a failure of a write of one operation into the fields of a request to a table or function: a number of
/// rows that Accept or Prefer does not allow, an unknown table or function.
void translate_write_failure(failure& f);

}  // namespace fencegate::api
