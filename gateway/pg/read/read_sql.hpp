#pragma once

#include <gateway/domain/table_read.hpp>
#include <gateway/pg/write/statement_writer.hpp>

#include <cstddef>

namespace fencegate::pg {

/// The statement of a read, or why there is none.
///
/// What it gives, by shape. rows: a JSON array in pieces (split_into_pieces) with count, and count without limit and
/// offset or NULL. value: JSON text in pieces. nothing: one row without columns.
struct read_plan : plan_faults {
    statement sql;
    answer_shape shape = answer_shape::rows;
    bool needs_fence = false;  ///< It calls a function that may change something.
};

/// Turns a read into SQL. Pure. As plan_write: identifiers come from the catalog, values are bound.
///
/// Pointers: those of the request's parts, the names of parameters elsewhere, and "table" and "function" for the names
/// in the path.
read_plan plan_read(const catalog& known, const read_request& request);

}  // namespace fencegate::pg
