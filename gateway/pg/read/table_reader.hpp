#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/table_read.hpp>
#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/connection/session_slot.hpp>
#include <gateway/pg/read/snapshot_state.hpp>

namespace fencegate::pg {

/// Reads rows of a table, or the value of a function that changes nothing.
///
/// A plain read is a read-only transaction in one round trip. A fenced read raises the fences first and commits that,
/// in two: what it read was committed by nobody older than the fence, and nobody older can write once it has been
/// answered. What it saw may not be on disk yet: `state` tells, asked for in the same round trip; a fenced read that
/// raises nothing always finds something, the lock of its own on the guard row.
///
/// In:      `until` ends it through statement_timeout. `answers`: what it gives is counted there, for `principal`,
/// before it
///          is kept.
/// Errors:  unprocessable with the parameter · not_found for the table or function · fencing_required for a function
/// that
///          may change something · stale_fencing_token, which stands in the history · too_large, where the answer is ·
///          overloaded where `answers` has no room for it ·
///          those of PostgreSQL by sqlstate_map. A connection that breaks is replaced once: a read may be done twice.
/// Threads: the slot's worker.
snapshot_of<read_outcome> run_read(session_slot& slot, catalog_store& catalogs, memory_budget& answers,
                                   const std::string& principal, const read_request& request, deadline until);

}  // namespace fencegate::pg
