#pragma once

#include <gateway/domain/write_request.hpp>
#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/write/kept_outcome.hpp>
#include <gateway/pg/write/update_group.hpp>
#include <gateway/pg/write/write_sql.hpp>

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::pg {

/// A write of a transaction.
struct planned_write {
    const write_request* request = nullptr;
    write_plan statements;  ///< Without faults.

    const std::string& resource() const { return request->resources.front().str(); }
};

enum class step_kind {
    begin,
    limits,  ///< Sets the timeouts, and whether COMMIT waits for the disk.
    claim_keys,
    savepoint,    ///< To which a refusal goes back that is kept under its key.
    guards,       ///< fencing.begin_writes: enters the resources of several writes.
    guard,        ///< fencing.begin_write.
    turn,         ///< Of a write that was entered with others: what follows counts as its own.
    operation,    ///< One of a write, or the update of a group.
    recheck,      ///< Whether the update of a group may have been one statement.
    seal,         ///< fencing.seal_writes.
    constraints,  ///< Deferred constraints speak before the outcome is kept.
    record,       ///< Adds the history's row of a failed write.
    keep,         ///< fencing.keep_outcomes.
    commit,
};

/// One statement of a transaction.
struct transaction_step {
    step_kind kind = step_kind::begin;
    const std::string* sql = nullptr;
    const compat::parameters* parameters = nullptr;
    std::optional<std::size_t> write{};          ///< Whose it is; empty: of several.
    std::optional<std::size_t> group{};          ///< In transaction_plan::groups.
    std::size_t operation = 0;                   ///< Of the write.
    const planned_operation* planned = nullptr;  ///< How its answer is read.
    bool runs_user_code = false;
    bool ends_round_trip = false;  ///< What follows is sent only where all up to here did what they should.
};

/// Where the answers for one write are.
struct write_steps {
    std::optional<int> claim_row;  ///< Of the step that claims the keys.
    std::size_t guard = 0;         ///< The step that enters its resources,
    std::optional<int> guard_row;  ///< and the row there that is its own; empty: all.
    std::size_t first_operation = 0;
    std::optional<std::size_t> group;  ///< Where its update is part of one statement,
    std::size_t place = 0;             ///< at this place.
    std::size_t end = 0;               ///< Behind its last step.
};

/// Updates of several writes that are one statement.
struct planned_group {
    std::string shape;  ///< The statement that each of its writes would have run.
    std::size_t update = 0;
    std::size_t writes = 0;
};

/// The statements of one transaction in order, up to COMMIT; what they point to lives as long as the plan.
struct transaction_plan {
    std::vector<transaction_step> steps;
    std::vector<write_steps> writes;  ///< One a write.
    std::vector<planned_group> groups;
    std::size_t claim = 0;  ///< The step that claims the keys, where a write has one.

    std::deque<std::string> texts{};
    std::deque<compat::parameters> values{};
};

/// How a transaction is run.
struct transaction_options {
    /// Of one write alone: each answer is looked at before the next statement is sent, and its refusal is final. In a
    /// transaction of several a write that is refused leaves, and is tried again isolated.
    bool isolated = false;
    bool defer_flush = false;  ///< COMMIT does not wait for the disk; see commit_flush.
    bool join_guards = true;   ///< By fencing.begin_writes where it fits.
    bool join_updates = true;  ///< See update_group.hpp.
    std::chrono::milliseconds statement_timeout{};
    std::chrono::milliseconds lock_timeout{};
    const catalog* known = nullptr;           ///< From which the statements are; needed to join updates.
    const group_refusals* refused = nullptr;  ///< The same.
};

/// Plans the transaction of `writes` up to what has to be known before outcomes can be kept. Pure.
///
/// In:      an order in which resources' names never fall, so that guards are locked in the order of their names; one
///          write where isolated, and functions are called by no other.
/// Out:     one round trip; of an isolated write one up to its key, one up to its guard, and one for each operation.
///          Keys are claimed before the first write; seals come behind the last.
transaction_plan plan_transaction(const std::vector<planned_write>& writes, const transaction_options& options);

/// Plans what keeps outcomes, in the same transaction behind the other statements. Empty `outcomes`: no steps. Pure.
transaction_plan plan_kept_outcomes(const std::vector<outcome_to_keep>& outcomes, bool isolated);

/// Plans the history's row of a failed write, and keeps its refusal where `kept` is not empty. Pure.
transaction_plan plan_failure_record(const std::string& item_json, const std::vector<outcome_to_keep>& kept);

}  // namespace fencegate::pg
