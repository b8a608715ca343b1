#pragma once

#include <gateway/domain/memory_budget.hpp>
#include <gateway/domain/table_read.hpp>
#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/connection/session_slot.hpp>
#include <gateway/pg/write/statement_writer.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fencegate::pg {

template <class T>
struct snapshot_of;  // group_commit.hpp

/// The statement of a read, or the faults of the request.
///
/// The statement's result depends on `shape`. rows: the rows' text in pieces (split_into_pieces), the number of rows,
/// and the number without limit and offset or NULL. value: JSON text in pieces. nothing: one row without columns.
struct read_statement : statement_faults {
    statement sql;
    statement estimate;  ///< Asks the planner how many rows there are without limit; empty: not asked for.
    answer_shape shape = answer_shape::rows;
    bool needs_fence = false;  ///< The read calls a function that may change something.
};

/// Turns a read into SQL. A pure function. As in build_statements, identifiers come from the
/// catalog and values are bound.
///
/// Errors: none thrown; see statement_faults. A fault's pointer is that of the request's part, the name of a parameter,
///         or "table" or "function" for the name in the path.
read_statement build_read(const catalog& known, const read_request& request);

/// Returns the planner's number of rows from the answer to read_statement::estimate, JSON text. Throws std::exception
/// for any other text.
std::int64_t read_estimate(std::string_view json);

/// Reads rows of a table, or the value of a function that changes nothing.
///
/// A plain read is a read-only transaction in one round trip. A fenced read raises the fences first, reads, and commits
/// in a second round trip: once it is answered, no holder of an older token can change what was read. What the read saw
/// may not be on disk yet: the same round trip asks for that, and `state` of the result says it. A fenced read that
/// raises nothing always finds the log unflushed, because it locked the guard row itself.
///
/// In:      `until` ends the read through statement_timeout. The answer is reserved from `answers` for `principal`
///          before it is kept.
/// Errors:  unprocessable with the parameter, also where the answer is too large · not_found for the table or function
///          · fencing_required for a function that may change something · stale_fencing_token, which the history
///          records · overloaded where the answer does not fit into `answers` · those of PostgreSQL by sqlstate_map.
///          After a broken connection the read is repeated once on a new one.
/// Threads: the slot's worker.
snapshot_of<read_outcome> run_read(session_slot& slot, catalog_store& catalogs, memory_budget& answers,
                                   const std::string& principal, const read_request& request, deadline until);

}  // namespace fencegate::pg
