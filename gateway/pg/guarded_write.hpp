#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/catalog.hpp>
#include <gateway/pg/session_slot.hpp>

namespace fencegate::pg {

/// Runs one guarded write: BEGIN, fencing.begin_write, one statement an operation, COMMIT. With a key
/// fencing.claim_keys goes first, and fencing.keep_outcomes last; a write that is to be sealed has fencing.seal_writes
/// behind its operations.
///
/// In:      `until` ends the write through statement_timeout, and is looked at before each statement.
/// Out:     what each operation did; all of it committed.
/// Errors:  pool::write's. Everything but outcome_unknown means that nothing was changed. A stale token is committed
/// all the same, so
///          that fencing.begin_write's write_rejected row stays. A write that failed after it had entered is rolled
///          back, and one row of history is written for it in a transaction of its own: write_rejected where the guard
///          refused, else write_failed. With a key it is rolled back to behind claim_keys, and the row and the outcome
///          are committed there (is_kept). Operations that don't fit the catalog are refused before anything is sent,
///          and are not in the history.
/// Threads: the slot's worker.
/// Limits:  rows and values are taken from `answers` before they are kept; where they don't fit: overloaded, and
/// nothing was
///          changed.
result<write_outcome> run_write(session_slot& slot, catalog_store& catalogs, memory_budget& answers,
                                const write_request& request, deadline until);

}  // namespace fencegate::pg
