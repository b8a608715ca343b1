#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/session_slot.hpp>
#include <gateway/pg/update_group.hpp>
#include <gateway/pg/write_sql.hpp>

#include <chrono>
#include <optional>
#include <vector>

namespace fencegate::pg {

/// How long a statement of a shared transaction may run or wait for a lock before its write has to leave.
inline constexpr std::chrono::milliseconds patience{100};
/// The same once one write had to leave: the others have waited already.
inline constexpr std::chrono::milliseconds patience_again{25};

enum class write_fate {
    answered,   ///< See `answer`.
    committed,  ///< See `answer`; but it may not be on disk yet, and nobody may be told before.
    alone,      ///< Nothing was changed. What is wrong with it shows when it is run by itself.
    too_long,   ///< Nothing was changed. It waits for a lock, or is slow: it must not hold up anybody.
};

/// A write that shares a transaction with others.
struct shared_write {
    const write_request* request = nullptr;
    write_plan plan;  ///< Without faults.
    write_fate fate = write_fate::alone;
    std::optional<result<write_outcome>> answer;
};

/// Who waits until the disk has a shared transaction.
enum class durability {
    awaited,  ///< COMMIT does.
    later,    ///< The caller: see write_fate::committed.
};

struct shared_manner {
    durability when = durability::awaited;
    const catalog* known = nullptr;  ///< From which the plans are.
    group_refusals* refused = nullptr;
    memory_budget* answers = nullptr;  ///< Of which the rows are taken that writes give.
};

/// Runs several guarded writes in one transaction: BEGIN, the timeouts, fencing.begin_writes (begin_write where that
/// does not fit) and the operations of each in one round trip, COMMIT in a second.
///
/// In:      writes in an order in which their resources' names never fall, so that guards are locked in the order of
///          their names; none of them calls a function.
///          Keys are claimed before the first write, seals come behind the last, and outcomes are kept on the way of
///          COMMIT: a write whose key is not new leaves.
/// Writes that are one update of the same shape each, on different resources, become one statement (update_group.hpp).
/// Out:     each write's fate. A write is answered only with what was committed, or where a connection broke; whatever
///          else happens to one, it leaves, the transaction is rolled back, and the others begin anew without it. So
///          nobody's error, lock or refusal shows in another's answer, and a write that fails is judged in a
///          transaction of its own (run_write), where its history is written too.
/// Errors:  where the connection broke before COMMIT was sent, once more on a new one, then storage_unavailable:
/// nothing
///          was changed. Broken during COMMIT: looked up by write_id; where that fails, outcome_unknown.
/// Threads: the slot's worker.
/// Limits:  each write that leaves costs the others one round trip, and at most `patience`, then `patience_again`.
void run_shared(session_slot& slot, std::vector<shared_write>& writes, deadline until, const shared_manner& how);

}  // namespace fencegate::pg
