#pragma once

#include <gateway/config/config.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/memory_budget.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/connection/write_session.hpp>
#include <gateway/pg/executor/worker.hpp>
#include <gateway/pg/write/group_commit.hpp>
#include <gateway/pg/write/isolated_write.hpp>
#include <gateway/pg/write/joined_update.hpp>
#include <gateway/pg/write/kept_outcome.hpp>
#include <gateway/pg/write/write_transaction.hpp>

#include <boost/asio/awaitable.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::pg {

/// The outcome kept under an idempotency key; `value` is empty where none is kept.
struct found_outcome {
    found_outcome() = default;  // no aggregate: a failure must not convert to a found_outcome implicitly
    std::optional<result<write_outcome>> value;
};

/// A key whose kept outcome is to be looked up, and the caller that waits for it.
struct pending_lookup {
    outcome_key key;
    deadline until;
    std::shared_ptr<caller_awaiting<found_outcome>> caller;

    const std::string& principal() const { return key.principal; }
    void refuse(failure why) noexcept { caller->answer(std::move(why)); }
};

/// A write and its deadline.
struct timed_write {
    write_request request;
    deadline until;
};

/// Whether the answer follows from data of another transaction that may not be on disk yet: from an outcome kept by it,
/// or from rows that made PostgreSQL refuse. The failure to reach PostgreSQL follows from no data.
bool reveals_unproven_data(const result<committed_write>& written);

/// Looks up outcomes that are kept under idempotency keys, without claiming the keys.
///
/// Threads: safe.
/// Limits:  one worker, which connects when first needed.
class outcome_lookup {
  public:
    outcome_lookup(const postgres_config& cfg, queued_jobs& queued, group_commit& flush);

    /// Looks up the outcome that is kept under a principal's key. For a call that does more than write, before it does
    /// that; a later write may still find an outcome.
    ///
    /// Out:    empty where none is kept.
    /// Errors: those of the look-up, and the refusal that is kept.
    boost::asio::awaitable<result<std::optional<write_outcome>>> find(std::string principal, idempotency_key key,
                                                                      deadline until);

    /// Looks up all keys in one round trip, once more on a new session where the first was lost, and answers each
    /// caller. Called by the worker.
    static void run_batch(write_session& session, const std::vector<pending_lookup>& lookups);

    pg::worker& worker() { return worker_; }

  private:
    group_commit& flush_;
    pg::worker worker_;
};

/// The job of a worker: one write, or a group of several that have one lease.
struct queued_writes {
    std::vector<pending_write> writes;  ///< Not empty.
    deadline until;
    std::shared_ptr<waiting_caller> caller;

    const std::string& principal() const { return writes.front().principal(); }
    void refuse(const failure& why) noexcept {
        for (auto& write : writes)
            write.refuse(why);
    }
};

/// Maximum number of outcomes deleted by one job, which takes some milliseconds of a worker's time.
inline constexpr std::size_t sweep_max = 500;
/// The pause after a job that found fewer expired outcomes than sweep_max.
inline constexpr std::chrono::milliseconds sweep_interval{5'000};

/// Decides when expired outcomes are deleted: one job per interval, and one after the other while there are more to
/// delete. Every gateway does this; they skip rows that another one is deleting.
///
/// Threads:  next_batch() from one thread; the job may run on another.
/// Lifetime: outlives its jobs.
class outcome_sweep {
  public:
    /// Returns the next job if it is due and the last one has ended; else null.
    std::unique_ptr<job> next_batch(std::chrono::steady_clock::time_point now);

  private:
    class batch;

    std::atomic<bool> under_way_{false};
    std::atomic<bool> more_{false};  ///< The last batch was full.
    std::chrono::steady_clock::time_point last_{};
};

/// Counts batches by the number of their writes, in powers of two: the n-th count has the batches of up to 2^n writes,
/// the last one all larger ones.
///
/// Threads: safe.
class batch_sizes {
  public:
    static constexpr std::size_t classes = 8;  ///< 1, 2, 4, … 64, and more

    void count(std::size_t writes) {
        if (writes == 0) return;
        const auto n = std::min<std::size_t>(std::bit_width(writes - 1), classes - 1);
        counts_[n].fetch_add(1, std::memory_order_relaxed);
        writes_.fetch_add(writes, std::memory_order_relaxed);
    }
    std::uint64_t counted(std::size_t n) const { return counts_[n].load(std::memory_order_relaxed); }
    std::uint64_t writes() const { return writes_.load(std::memory_order_relaxed); }

  private:
    std::array<std::atomic<std::uint64_t>, classes> counts_{};
    std::atomic<std::uint64_t> writes_{0};
};

/// Maximum number of operations in one shared transaction; below prepared_max of a session, so that none of its
/// prepared statements is dropped before it is sent.
inline constexpr std::size_t shared_operations_max = 128;

/// Sorts the writes by their first resource; those with the same one stay in their order. A pure function.
void sort_by_resource(std::vector<pending_write>& waiting);

/// Takes the writes of the next transaction out of `waiting`, which is sorted: as many as fit, in ascending order of
/// their resources' names. Writes of a group are taken together. A pure function.
///
/// Guards are locked in the order of their resources' names everywhere. A write on several resources that would break
/// this order waits for the next transaction on the same worker.
std::vector<pending_write> take_next_batch(std::vector<pending_write>& waiting);

/// A write that left its batch and is to run isolated.
struct left_write {
    pending_write pending;
    bool waited = false;  ///< It waits for a lock or is slow: later writes on its resources follow it.
};

/// The writes of a batch that are not answered yet.
struct unanswered_writes {
    std::vector<left_write> left;
    committed_transaction undurable;  ///< Those that wait for the disk.
};

/// Whether COMMIT leaves the wait for the disk to group_commit.
enum class flush_mode {
    by_commit,           ///< Never: it is not available.
    deferred_if_shared,  ///< Only with several writes or a seal: COMMIT itself answers a single write sooner.
    deferred             ///< Always, because others wait for the disk already.
};

/// Runs one shared transaction and answers its writes, except those that are returned. What may take long is done by
/// others: waits for locks, and readings of the catalog before a refusal.
unanswered_writes run_and_answer_batch(write_session& session, catalog_source& catalogs, memory_budget& budget,
                                       std::vector<pending_write> batch, unjoinable_updates& unjoinable,
                                       flush_mode flush) noexcept;

/// Runs guarded writes: plan (transaction_plan.hpp) → execute (write_transaction.hpp) → evaluate
/// (transaction_result.hpp).
///
/// A write goes to the worker of its first resource, where principals take turns: the writes of one principal that have
/// the same first resource keep their order of arrival. There are two exceptions: a write that its batch could not
/// decide runs again by itself, after those that arrived later; and writes that share another resource are ordered by
/// its guard row alone.
///
/// Writes that wait for a worker share a transaction, and share the wait for the disk with all others
/// (group_commit.hpp). Writes that call functions or wait for locks, and refused ones that may have changed rows, go to
/// isolated_write_executor.
///
/// Threads: member functions may be called from any thread; awaitables resume on their caller's executor.
/// Limits:  postgres.connections workers, of which the first two take batches; as many isolated workers, which connect
///          when first needed. postgres.queue_max jobs wait; a group is one.
/// Cancel:  not supported; a queued write runs to its end.
class write_executor {
  public:
    write_executor(const postgres_config& cfg, queued_jobs& queued, catalog_store& catalogs, memory_budget& budget,
                   group_commit& flush);

    /// Runs one guarded write, all or nothing. It may share its transaction with others, which does not affect its
    /// answer.
    ///
    /// Out:    the outcome; with an idempotency key possibly that of an earlier write, marked `replayed`. A write that
    ///         seals its token is answered as soon as it is visible, so that its lease can be released while it waits
    ///         for the disk; see durability_waiter.
    /// Errors: see gateway/pg/connection/sqlstate_map.hpp; stale_fencing_token, resource_not_covered,
    ///         expectation_failed, constraint_violation, write_conflict, unprocessable, fencing_required;
    ///         idempotency_mismatch, idempotency_in_progress; overloaded, where the rows do not fit into the answers'
    ///         budget. A commit whose answer was lost is looked up by write_id;
    ///         outcome_unknown only where that fails too.
    boost::asio::awaitable<result<committed_write>> write(write_request request, deadline until);

    /// Runs a group: writes under one lease, of the same resources and principal, in order, and in one transaction if
    /// they fit what is exposed and PostgreSQL refuses none. Each succeeds or fails for itself.
    ///
    /// In:     none calls a function; they have at most shared_operations_max operations together, or `writes` is one.
    ///         All seal the token, or none.
    /// Out:    as write(), one for each, when all of them are visible or have failed. The token is sealed only if all
    ///         that were applied are `sealed`: not if one of them had to run by itself. An answer that
    ///         reveals_unproven_data() must not be given before require_durable() returns.
    boost::asio::awaitable<std::vector<result<committed_write>>> write_together(std::vector<timed_write> writes);
    /// See group_commit. `server_ran_at`: a moment before write_together().
    boost::asio::awaitable<std::optional<failure>> require_durable(std::chrono::steady_clock::time_point server_ran_at,
                                                                   deadline until) {
        return flush_.require_durable(server_ran_at, until);
    }

    /// Returns an isolated worker for other work that may wait for locks on the resources, and what has to be kept
    /// until it has ended; writes on the resources wait for it in the same queue.
    joined_worker isolate(const std::vector<lockcore::resource_name>& resources, const std::string& principal) {
        return isolated_.join(resources, principal);
    }
    /// Returns a worker for work that needs no order.
    worker& least_loaded_worker() const;

    const batch_sizes& batches() const { return sizes_; }
    const std::vector<std::unique_ptr<worker>>& workers() const { return workers_; }
    outcome_lookup& kept_outcomes() { return kept_outcomes_; }
    const std::vector<std::unique_ptr<worker>>& isolated_workers() const { return isolated_.workers(); }

    /// Runs writes that waited together: passes those that must not share a transaction to the isolated workers, and
    /// runs the others in batches. Called by a worker.
    void run_batch(session_slot& slot, std::vector<queued_writes> queued);

  private:
    worker& worker_for(const std::vector<lockcore::resource_name>& resources) const;
    void submit_writes(queued_writes queued);
    flush_mode choose_flush_mode() const;

    catalog_store& catalogs_;
    memory_budget& budget_;
    group_commit& flush_;
    isolated_write_executor isolated_;
    unjoinable_updates unjoinable_;
    batch_sizes sizes_;
    std::vector<std::unique_ptr<worker>> workers_;
    outcome_lookup kept_outcomes_;
};

}  // namespace fencegate::pg
