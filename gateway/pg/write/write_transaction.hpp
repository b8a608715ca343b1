#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/history_item.hpp>
#include <gateway/domain/memory_budget.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/connection/write_session.hpp>
#include <gateway/pg/write/group_commit.hpp>
#include <gateway/pg/write/transaction_plan.hpp>
#include <gateway/pg/write/transaction_result.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::pg {

/// A guarded write and the caller that waits for it.
struct pending_write {
    write_request request;
    deadline until;
    std::shared_ptr<caller_awaiting<committed_write>> caller;
    /// The same for all writes of a group, which have one lease and follow each other (write_executor::write_together).
    /// All of them are answered as soon as they are visible. If one leaves the transaction, none seals the token. Null:
    /// the write is of no group.
    std::shared_ptr<const void> group{};

    /// The write is to run outside of the group's transaction.
    void leave_group() {
        if (group) request.seal = false;
    }
    void refuse(failure why) noexcept { caller->answer(std::move(why)); }
    const std::string& principal() const { return request.initiator.principal; }
    const std::string& first_resource() const { return request.resources.front().str(); }
};

/// Whether two writes are of one group.
inline bool are_grouped(const pending_write& a, const pending_write& b) {
    return a.group && a.group == b.group;
}

/// How long a statement of a shared transaction may run or wait for a lock before its write is removed from the batch.
inline constexpr std::chrono::milliseconds shared_statement_timeout{100};
/// The same after one write was removed: the others have waited already.
inline constexpr std::chrono::milliseconds reduced_statement_timeout{25};

/// The transaction of some writes, shared or isolated, up to COMMIT: sends the steps of a plan (transaction_plan.hpp)
/// and returns the answers for an evaluation (transaction_result.hpp).
///
/// PREPARE waits for locks on tables: where a statement of a shared transaction has to be prepared, the steps that set
/// its timeouts are sent first, in a round trip of their own.
///
/// In:      `budget`: the memory for the texts of answers, each reserved for the principal of its write.
/// Errors:  throws session_lost. An error of PostgreSQL is in the answers; one after which the session can't be used
///          too, if the transaction is isolated, else it is thrown.
/// Timeout: that of its options for each statement. An isolated write sends no operation after `until`.
class write_transaction {
  public:
    write_transaction(write_session& session, memory_budget& budget, transaction_options options, deadline until);

    /// Plans and sends the transaction, once more on a new session where the first was lost or has outdated statements,
    /// because nothing is committed yet. An isolated write is sent again only if no function was executed, which may
    /// have done what no rollback undoes: where the session was lost, if no step was answered.
    transcript send(const std::vector<planned_write>& writes, transaction_plan& plan);

    /// Replaces the lost session, at most once. Called from a handler of session_lost; rethrows it where the session
    /// may not be replaced.
    void reconnect_once();

    /// Keeps the outcomes of writes that have a key, in the transaction of these writes alone.
    ///
    /// Out: empty, or the refusal of PostgreSQL.
    std::optional<write_refusal> keep(const std::vector<outcome_to_keep>& outcomes);

    /// Adds the history's rows of failed writes, and keeps their refusals where `kept` is not empty. That of an
    /// isolated write belongs to its transaction if that is still open; those of shared ones are a transaction of their
    /// own, which does not wait for the disk with `defer_flush`. Throws statement_failed.
    void record(const std::vector<history_item>& items, const std::vector<outcome_to_keep>& kept);

    /// Whether the transaction was sent again on a new session.
    bool was_repeated() const { return repeated_; }
    transaction_options& options() { return options_; }
    deadline until() const { return until_; }
    write_session& session() { return session_; }

  private:
    statement_errors returned_errors() const;
    void execute(const transaction_plan& plan, statement_errors returned, deadline until, transcript& seen);
    bool run_round_trip(const transaction_plan& plan, std::size_t begin, std::size_t end, statement_errors returned,
                        transcript& seen);

    write_session& session_;
    memory_budget& budget_;
    transaction_options options_;
    deadline until_;
    bool repeated_ = false;
};

enum class batch_result {
    retry_isolated,  ///< Nothing was changed. Running the write isolated decides its outcome.
    waited,          ///< The same; it waits for a lock or is slow, and so would later writes on its resources.
    decided,         ///< `outcome` is final.
    committed,       ///< `outcome` holds once the transaction is on disk; the caller must not be answered before.
};

/// A write that shares a transaction with others.
struct batch_write {
    std::optional<planned_write> write{};  ///< Empty: it takes no part and stays retry_isolated.
    batch_result status = batch_result::retry_isolated;
    std::optional<result<write_outcome>> outcome{};
};

struct batch_options {
    bool defer_flush = false;                ///< COMMIT does not wait for the disk: see batch_result::committed.
    std::shared_ptr<const catalog> known{};  ///< The catalog of the statements.
    unjoinable_updates* unjoinable = nullptr;
};

/// Runs several guarded writes in one transaction: all statements in one round trip, the outcomes to keep, if any, in a
/// second, COMMIT in the last.
///
/// In:      see plan_transaction; no write calls a function.
/// Out:     each write's result. It is decided only if the write was committed or the connection broke. After anything
///          else the write leaves, the transaction is rolled back, and the other writes start again without it, so that
///          no write's error, lock or refusal affects the outcome of another. One that is refused because it changed
///          no row, and expected to, is decided too, after the history has its row.
/// Errors:  where the connection broke before COMMIT was sent, tries once more on a new one; then storage_unavailable,
///          nothing was changed. Where it broke during COMMIT, the transaction is looked up by write_id; where that
///          fails, outcome_unknown. Throws where an answer can't be read: nothing was changed.
/// Threads: the session's worker.
/// Limits:  each write that leaves costs the others two round trips, and at most shared_statement_timeout, later
///          reduced_statement_timeout.
void run_shared_transaction(write_session& session, memory_budget& budget, std::vector<batch_write>& writes,
                            deadline until, const batch_options& options);

}  // namespace fencegate::pg
