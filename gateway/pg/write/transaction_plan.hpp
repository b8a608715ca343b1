#pragma once

#include <gateway/domain/write_request.hpp>
#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/write/joined_update.hpp>
#include <gateway/pg/write/kept_outcome.hpp>
#include <gateway/pg/write/write_sql.hpp>

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::pg {

/// A write of a transaction.
struct planned_write {
    const write_request* request = nullptr;
    write_statements statements;          ///< Without faults.
    std::shared_ptr<const void> group{};  ///< As pending_write::group.
    bool keeps_token = false;             ///< Does not seal the token: a write of its group runs later, and needs it.
    /// In the run before, it changed no row and failed only its expect_rows, behind a change of the same lease: it runs
    /// again without a call of the guard, so without a row in the history, and has to be refused again.
    bool presumed_refused = false;

    bool seals() const { return request->seal && !keeps_token; }

    const std::string& resource() const { return request->resources.front().str(); }
};

enum class step_kind {
    begin,
    timeouts,      ///< Sets them, and whether COMMIT waits for the disk.
    claim_keys,    ///< fencing.claim_keys.
    savepoint,     ///< A kept refusal rolls back to it, behind the claimed keys.
    read_fences,   ///< fencing.raise_read_fences, for what the lease of an isolated write shares.
    guards,        ///< fencing.begin_writes: enters the resources of several writes.
    guard,         ///< fencing.begin_write: enters the resources of one write.
    select_write,  ///< Selects the write whose resources the following steps may change, or none.
    name_write,    ///< Names the write whose changes are recorded, where an earlier one has opened its resource.
    take_role,     ///< Takes the database role of a write's caller for its operations.
    operation,     ///< An operation of a write, or a joined update.
    leave_role,    ///< Takes the gateway's own role again.
    recheck,       ///< Checks that the update before it was allowed to be joined.
    seal,          ///< fencing.seal_writes.
    constraints,   ///< Checks deferred constraints and runs deferred triggers, before the role of their caller ends and
                   ///< before the outcome is kept.
    defer,         ///< Defers again, after `constraints`, what is deferred at first.
    record,        ///< Adds the history's rows of failed writes.
    keep,          ///< fencing.keep_outcomes.
    commit,
};

/// One statement of a transaction.
struct transaction_step {
    step_kind kind = step_kind::begin;
    const std::string* sql = nullptr;
    const compat::parameters* parameters = nullptr;
    std::optional<std::size_t> write{};              ///< Index of the write; empty: the step serves several writes.
    std::optional<std::size_t> joined_update{};      ///< Index in transaction_plan::joined_updates.
    std::size_t operation = 0;                       ///< Index of the write's operation.
    const operation_statement* statement = nullptr;  ///< Says how the answer is read; null: not an operation.
    bool runs_user_code = false;
    bool in_callers_role = false;  ///< The statement is refused if the caller's role, not the gateway's, may not do it.
    bool ends_round_trip = false;  ///< Later steps are sent only if allows_next() holds for all up to here.
};

/// Where the answers for one write are.
struct write_steps {
    std::optional<int> key_row;                ///< The write's row in the answer of the step that claims the keys.
    std::optional<std::size_t> read_fences{};  ///< The step that raises the read fences of what its lease shares.
    std::size_t guard = 0;                     ///< The step that enters its resources.
    /// The write's row in the answer of that step, where it enters one resource for each of several writes. Empty: all
    /// rows are the write's.
    std::optional<int> joined_guard_row;
    std::size_t entered_for = 0;  ///< The write for which that step has opened the resource: this or an earlier one.
    bool entered = true;          ///< False: presumed refused, it uses what that step did for the write before it.
    std::size_t first_operation = 0;
    std::optional<std::size_t> joined_update;  ///< Index in transaction_plan::joined_updates; empty: it has its own.
    std::size_t position = 0;                  ///< The write's position in the joined update, from 1 on.
    std::size_t end = 0;                       ///< The step after its last one.
};

/// Updates of several writes that one statement makes.
struct planned_joined_update {
    std::string single_update;    ///< The SQL that each of its writes would run by itself.
    std::size_t first_write = 0;  ///< Index of its first write, for which the resources of all are open.
    std::size_t writes = 0;       ///< Number of writes.
    std::size_t select = 0;       ///< Index of the step that selects its first write.
    std::size_t update = 0;       ///< Index of the step that updates.
    std::size_t recheck = 0;      ///< Index of the step that checks that the update was allowed; the last one.
};

/// The statements of one transaction in order, up to COMMIT. The texts and values that the steps point to live as long
/// as the plan and the writes; so the plan can be moved, not copied.
struct transaction_plan {
    transaction_plan() = default;
    transaction_plan(transaction_plan&&) = default;
    transaction_plan& operator=(transaction_plan&&) = default;

    std::vector<transaction_step> steps;
    std::vector<write_steps> writes;  ///< One for each write.
    std::vector<planned_joined_update> joined_updates;
    std::size_t key_step = 0;  ///< The step that claims the keys, if a write has a key.
    /// Statements from this step on are prepared only when the steps before it have set the transaction's timeouts,
    /// because PREPARE waits for locks on tables. 0: no such rule.
    std::size_t prepared_with_timeouts = 0;

    std::deque<std::string> texts{};
    std::deque<compat::parameters> values{};
};

/// How a transaction is run.
struct transaction_options {
    /// The transaction has one write: each answer is checked before the next statement is sent, and a refusal is final.
    /// From a transaction of several writes a refused write is removed, and tried again isolated.
    bool isolated = false;
    bool defer_flush = false;  ///< COMMIT does not wait for the disk; see group_commit.
    bool join_guards = true;   ///< Enter the resources of several writes by fencing.begin_writes where possible.
    bool join_updates = true;  ///< Join updates of several writes where possible; see joined_update.hpp.
    /// Run what a write has deferred before the next write, so that it is known whose constraint or trigger fails.
    bool separate_checks = false;
    std::chrono::milliseconds statement_timeout{};
    std::chrono::milliseconds lock_timeout{};
    const catalog* known = nullptr;                  ///< The catalog of the statements; required for join_updates.
    const unjoinable_updates* unjoinable = nullptr;  ///< Required for join_updates.
};

/// Plans the transaction of `writes` up to the point where outcomes can be kept. A pure function.
///
/// In:      `writes` in ascending order of their resources' names, so that guards are locked in the order of their
///          names; if isolated, exactly one write. Only an isolated write calls functions, or
///          has a lease that shares resources.
/// Out:     one round trip, or two where a statement has to be prepared (prepared_with_timeouts); for an isolated write
///          one up to the claim of its key, one up to its guard, one for each operation, and one for the seal. Keys are
///          claimed before the first write; seals follow the last, except that the guard seals a write that is alone,
///          on one resource, and calls no function.
transaction_plan plan_transaction(const std::vector<planned_write>& writes, const transaction_options& options);

/// Plans the steps that keep outcomes, at the end of the same transaction; no steps for empty `outcomes`. A pure
/// function.
transaction_plan plan_kept_outcomes(const std::vector<outcome_to_keep>& outcomes, bool isolated);

/// Plans the history's rows of failed writes, and the keeping of their refusals where `kept` is not empty: for an
/// isolated write in its transaction, else in a transaction of their own. A pure function.
transaction_plan plan_failure_records(const std::string& items_json, const std::vector<outcome_to_keep>& kept,
                                      const transaction_options& options);

}  // namespace fencegate::pg
