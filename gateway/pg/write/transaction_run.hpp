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

/// How long a statement of a shared transaction may run or wait for a lock before its write has to leave.
inline constexpr std::chrono::milliseconds shared_statement_timeout{100};
/// The same once one write had to leave: the others have waited already.
inline constexpr std::chrono::milliseconds reduced_statement_timeout{25};

enum class batch_result {
    retry_isolated,    ///< Nothing was changed. What is wrong with it shows when it is run by itself.
    exceeded_timeout,  ///< Nothing was changed. It waits for a lock, or is slow: it must not hold up anybody.
    answered,          ///< See `answer`.
    committed,         ///< See `answer`; but it may not be on disk yet, and nobody may be told before.
};

/// A write that shares a transaction with others.
struct batch_write {
    planned_write write;
    batch_result became = batch_result::retry_isolated;
    std::optional<result<write_outcome>> answer{};
};

struct batch_options {
    bool defer_flush = false;                ///< COMMIT does not wait for the disk: see batch_result::committed.
    std::shared_ptr<const catalog> known{};  ///< From which the statements are.
    group_refusals* refused = nullptr;
};

/// Sends the steps of `plan` and reads what they answer, round trip by round trip, as long as each did what lets the
/// next be sent.
///
/// In:      `answers` of which texts are taken, each for the principal of its write in `writes`.
/// Out:     `seen`, also where it throws: as far as answers came.
/// Errors:  throws session_lost. What PostgreSQL refused is in `seen`; where `unusable` says so, also an error that
///          leaves the session of no further use.
/// Timeout: no operation behind the first round trip is begun after `until`.
void execute(write_session& session, const transaction_plan& plan, std::span<const planned_write> writes,
             memory_budget& answers, unusable_session unusable, deadline until, transcript& seen);

/// Runs several guarded writes in one transaction: all in one round trip, COMMIT in a second.
///
/// In:      see plan_transaction; none calls a function.
/// Out:     each write's result. A write is answered only with what was committed, or where a connection broke;
/// whatever
///          else happens to one, it leaves, the transaction is rolled back, and the others begin anew without it. So
///          nobody's error, lock or refusal shows in another's answer.
/// Errors:  where the connection broke before COMMIT was sent, once more on a new one, then storage_unavailable:
/// nothing
///          was changed. Broken during COMMIT: looked up by write_id; where that fails, outcome_unknown. Throws where
///          an answer can't be read: nothing was changed.
/// Threads: the session's worker.
/// Limits:  each write that leaves costs the others two round trips, and at most shared_statement_timeout, then
///          reduced_statement_timeout.
void run_batch(write_session& session, memory_budget& answers, std::vector<batch_write>& writes, deadline until,
               const batch_options& options);

/// Runs one guarded write by itself: a batch of one whose refusal is final.
///
/// In:      `until` ends the write through statement_timeout, and is looked at before each operation.
/// Out:     what each operation did; all of it committed.
/// Errors:  write_executor::write's. Everything but outcome_unknown means that nothing was changed. A stale token is
///          committed all the same, so that fencing.begin_write's write_rejected row stays. A write that failed after
///          it had entered is rolled back, and one row of history is written for it in a transaction of its own:
///          write_rejected where the guard refused, else write_failed. With a key it is rolled back to behind
///          claim_keys, and the row and the outcome are committed there (is_kept). Operations that don't fit the
///          catalog are refused before anything is sent, and are not in the history. Statements that may have failed
///          because the catalog changed are planned anew, once. Overloaded where `answers` has no room for rows or a
///          value.
/// Threads: the session's worker.
result<write_outcome> run_isolated(write_session& session, catalog_source& catalogs, memory_budget& answers,
                                   const write_request& request, deadline until);

}  // namespace fencegate::pg
