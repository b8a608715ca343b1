#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/table_read.hpp>
#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/connection/session_slot.hpp>
#include <gateway/pg/read/snapshot_state.hpp>

namespace fencegate::pg {

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
