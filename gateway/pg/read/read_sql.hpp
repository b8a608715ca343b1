#pragma once

#include <gateway/domain/table_read.hpp>
#include <gateway/pg/write/statement_writer.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fencegate::pg {

/// The statement of a read, or the faults of the request.
///
/// The statement's result depends on `shape`. rows: the rows' text in pieces (split_into_pieces), the number of rows,
/// and the number without limit and offset or NULL. value: JSON text in pieces. nothing: one row without columns.
struct read_plan : plan_faults {
    statement sql;
    statement estimate;  ///< Asks the planner how many rows there are without limit; empty: not asked for.
    answer_shape shape = answer_shape::rows;
    bool needs_fence = false;  ///< The read calls a function that may change something.
};

/// Turns a read into SQL. A pure function. As in plan_write, identifiers come from the catalog and values are bound.
///
/// Errors: none thrown; see plan_faults. A fault's pointer is that of the request's part, the name of a parameter, or
///         "table" or "function" for the name in the path.
read_plan plan_read(const catalog& known, const read_request& request);

/// Returns the planner's number of rows from the answer to read_plan::estimate, JSON text. Throws std::exception for
/// any other text.
std::int64_t read_estimate(std::string_view json);

}  // namespace fencegate::pg
