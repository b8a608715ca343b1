#pragma once

#include <gateway/api/tables/preferences.hpp>
#include <gateway/api/writes/carry_out_write.hpp>
#include <gateway/domain/table_read.hpp>

#include <cstddef>

namespace fencegate::api {

/// GET /v1/tables/{table} as a query. `rows_max` bounds its limit, whatever it asks for.
///
/// Errors: errc::invalid_request with every faulty parameter by its name.
result<table_query> parse_table_query(const http::request& r, const preferences& wishes, std::size_t rows_max);

/// POST, PATCH or DELETE /v1/tables/{table} as a write of one operation; its lease_id is that of the header
/// Fencing-Lease.
///
/// In:     POST: an object, or an array of at most `rows_max` objects with the same keys. PATCH: an object.
/// Errors: errc::invalid_request with every faulty parameter and field · errc::unsupported_media_type. PATCH and DELETE
///         without a condition are refused.
result<write_call> parse_table_write(const http::request& r, const preferences& wishes, std::size_t rows_max);

}  // namespace fencegate::api
