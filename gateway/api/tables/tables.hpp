#pragma once

#include <gateway/api/services.hpp>
#include <gateway/api/tables/answer_form.hpp>
#include <gateway/domain/table_read.hpp>
#include <gateway/http/message.hpp>

#include <optional>

namespace fencegate::api {

/// GET /v1/tables/{table}: rows in the form that Accept asks for; with a lease or a bare token a fenced read.
/// Content-Range says which rows these are and, with Prefer: count, of how many (then 206 if they are not all).
http::awaitable_response read_table(const write_services& services, http::request r);

/// POST, PATCH and DELETE /v1/tables/{table}: a guarded write of one operation. 201, or 200 with rows and 204 without.
/// It is undone if it affects another number of rows than Accept or Prefer allows.
http::awaitable_response write_table(const write_services& services, http::request r);

/// Checks whether the caller may read the table or function that the path names, and returns the fence that the read
/// has to raise; none if the request has neither lease nor token. A plain read needs the scope `writes` for all
/// resources, a fenced one for those of the lease or token.
///
/// Errors: errc::forbidden · those of open_lease_or_token.
result<std::optional<read_fence>> authorize_read(const lockcore::lock_manager& locks, const http::request& r);

/// Returns the answer with the rows of a read. Errors: errc::not_acceptable if it has to be one object, and there is
/// another number of rows.
result<http::response> render_rows(read_outcome outcome, std::int64_t offset, const preferences& preferred,
                                   const answer_form& form);

/// Returns a Content-Range such as `0-9/42` or `*/*`.
std::string content_range(std::int64_t offset, std::int64_t rows, std::optional<std::int64_t> total);

/// POST /v1/rpc/{function}: the arguments by name in a JSON object, or no body. With a lease or a bare token it is a
/// guarded write; without, a plain read of a function that is declared stable or immutable. Answers with the function's
/// value as JSON, or 204.
http::awaitable_response call_function(const write_services& services, http::request r);

/// GET /v1/rpc/{function}?argument=text: a read of a function that is declared stable or immutable; with a lease or a
/// bare token a fenced read.
http::awaitable_response read_function(const write_services& services, http::request r);

}  // namespace fencegate::api
