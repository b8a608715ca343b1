#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/memory_budget.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/write/transaction_plan.hpp>
#include <gateway/pg/write/transaction_result.hpp>
#include <gateway/pg/write/write_session.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace fencegate::pg {

/// How long a statement of a shared transaction may run or wait for a lock before its write is removed from the batch.
inline constexpr std::chrono::milliseconds shared_statement_timeout{100};
/// The same after one write was removed: the others have waited already.
inline constexpr std::chrono::milliseconds reduced_statement_timeout{25};

enum class batch_result {
    retry_isolated,  ///< Nothing was changed. Running the write isolated decides its answer.
    waited,          ///< The same; it waits for a lock or is slow, and so would later writes on its resources.
    answered,        ///< `answer` is final.
    committed,       ///< `answer` holds once the transaction is on disk; the caller must not be answered before.
};

/// A write that shares a transaction with others.
struct batch_write {
    planned_write write;
    batch_result status = batch_result::retry_isolated;
    std::optional<result<write_outcome>> answer{};
};

struct batch_options {
    bool defer_flush = false;                ///< COMMIT does not wait for the disk: see batch_result::committed.
    std::shared_ptr<const catalog> known{};  ///< The catalog of the statements.
    group_refusals* refused = nullptr;
};

/// Sends the steps of `plan` and reads their answers, round trip by round trip, as long as allows_next() holds. PREPARE
/// waits for locks on tables: where a statement of a shared transaction has to be prepared, the steps that set its
/// timeouts are sent first, in a round trip of their own.
///
/// In:      `answers`: the budget for texts, each reserved for the principal of its write in `writes`.
/// Out:     `seen`: the answers so far, also where it throws.
/// Errors:  throws session_lost. An error of PostgreSQL is in `seen`; an error after which the session can't be used is
///          in `seen` too or thrown, as `unusable` says.
/// Timeout: no operation after the first round trip begins after `until`.
void execute(write_session& session, const transaction_plan& plan, std::span<const planned_write> writes,
             memory_budget& answers, unusable_session unusable, deadline until, transcript& seen);

/// Runs several guarded writes in one transaction: all statements in one round trip, the outcomes to keep, if any, in a
/// second, COMMIT in the last.
///
/// In:      see plan_transaction; no write calls a function.
/// Out:     each write's result. A write is answered only if it was committed or the connection broke. After anything
///          else the write leaves, the transaction is rolled back, and the other writes start again without it, so that
///          no write's error, lock or refusal affects the answer of another.
/// Errors:  where the connection broke before COMMIT was sent, tries once more on a new one; then storage_unavailable,
///          nothing was changed. Where it broke during COMMIT, the transaction is looked up by write_id; where that
///          fails, outcome_unknown. Throws where an answer can't be read: nothing was changed.
/// Threads: the session's worker.
/// Limits:  each write that leaves costs the others two round trips,
///          and at most shared_statement_timeout, later reduced_statement_timeout.
void run_batch(write_session& session, memory_budget& answers, std::vector<batch_write>& writes, deadline until,
               const batch_options& options);

/// Runs one guarded write in a transaction of its own; its refusal is final.
///
/// In:      `until` ends the write through statement_timeout, and is checked before each operation.
/// Out:     the results of the operations; all are committed.
/// Errors:  those of write_executor::write. Every error but outcome_unknown means that nothing was changed.
///          For a stale token the transaction is committed, so that begin_write's row write_rejected stays.
///          A write that failed after it had entered is rolled back, and a transaction of its own adds a row to the
///          history: write_rejected where the guard refused, else write_failed. With a key whose refusal is_kept() it
///          is rolled back to the savepoint after claim_keys, and the row and the outcome are committed there.
///          Operations that do not fit the catalog are refused before anything is sent, and the history has no row.
///          Statements that may have failed because the catalog changed are planned again, once; their refusal is kept
///          only if the catalog, read after it, was still the same. After a function was executed the write is not
///          repeated here: storage_unavailable, and the caller may repeat it.
///          overloaded, where rows or a value do not fit into `answers`.
/// Threads: the session's worker.
result<write_outcome> run_isolated(write_session& session, catalog_source& catalogs, memory_budget& answers,
                                   const write_request& request, deadline until);

}  // namespace fencegate::pg
