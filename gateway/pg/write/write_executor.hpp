#pragma once

#include <gateway/config/config.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/found_outcome.hpp>
#include <gateway/domain/memory_budget.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/executor/batch_worker.hpp>
#include <gateway/pg/executor/executor_status.hpp>
#include <gateway/pg/write/commit_flush.hpp>
#include <gateway/pg/write/committed_write.hpp>
#include <gateway/pg/write/isolated_write_executor.hpp>
#include <gateway/pg/write/outcome_lookup.hpp>
#include <gateway/pg/write/update_group.hpp>
#include <gateway/pg/write/write_batch.hpp>

#include <boost/asio/awaitable.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fencegate::pg {

/// What run_and_answer_batch calls for writes that it does not answer itself.
struct batch_callbacks {
    /// Passes a write that left its batch to an isolated worker; `later_too`: later writes on its resources follow it.
    std::function<void(pending_write, bool later_too)> isolate;
    std::function<void(committed_transaction)> await_durable;  ///< Passes on writes that wait for the disk.
    std::function<bool(std::size_t writes, bool sealed)> should_defer_flush;  ///< Whether COMMIT need not wait itself.
};

/// Runs one shared transaction and answers each of its writes, or passes it to a callback. What may take long is done
/// by others: waits for locks, and readings of the catalog before a refusal.
void run_and_answer_batch(write_session& session, catalog_source& catalogs, memory_budget& answers,
                          std::vector<pending_write> batch, group_refusals& refused,
                          const batch_callbacks& callbacks) noexcept;

/// Runs guarded writes: plan (transaction_plan.hpp) → execute (transaction_run.hpp) → evaluate
/// (transaction_result.hpp).
///
/// Writes on a resource always go to the same worker, so that they keep their order of arrival. Writes that wait for a
/// worker share a transaction, and share the wait for the disk with all others (commit_flush.hpp). Writes that call
/// functions, wait for locks or are refused go to isolated_write_executor.
///
/// Threads: member functions may be called from any thread; awaitables resume on their caller's executor.
/// Limits:  postgres.connections workers, of which the first two take batches; as many isolated workers, and one that
///          looks up kept outcomes, which connect when first needed. postgres.queue_max requests wait.
/// Cancel:  not supported; a queued write runs to its end.
class write_executor {
  public:
    write_executor(const postgres_config& cfg, queued_jobs& queued, catalog_store& catalogs, memory_budget& answers,
                   commit_flush& flush);

    /// Runs one guarded write, all or nothing. It may share its transaction with others, which does not affect its
    /// answer.
    ///
    /// Out:    the outcome; with an idempotency key possibly that of an earlier write, marked `replayed`. A write that
    ///         seals its token is answered as soon as it is visible, so that its lease can be released while it waits
    ///         for the disk; see await_durable.
    /// Errors: see gateway/pg/connection/sqlstate_map.hpp; stale_fencing_token, resource_not_covered,
    ///         expectation_failed, constraint_violation, write_conflict, unprocessable, fencing_required;
    ///         idempotency_mismatch, idempotency_in_progress; overloaded, where the rows do not fit into the answers'
    ///         budget. A commit whose answer was lost is looked up by write_id;
    ///         outcome_unknown only where that fails too.
    boost::asio::awaitable<result<committed_write>> write(write_request request, deadline until);

    /// Looks up the outcome kept under a principal's idempotency key, without claiming the key. For a call that does
    /// more than write, before it does that; a later write() may still find an outcome.
    boost::asio::awaitable<result<found_outcome>> find_outcome(std::string principal, idempotency_key key,
                                                               deadline until);

    /// Returns an isolated worker for other work that may wait for locks on the resources, and what has to be kept until
    /// it has ended; writes on the resources wait for it in the same queue.
    isolated_place isolate(const std::vector<lockcore::resource_name>& resources, const std::string& principal) {
        return isolated_.join(resources, principal);
    }
    /// Returns a worker for work that needs no order.
    worker& least_loaded_worker() const;

    const batch_sizes& batches() const { return sizes_; }
    const std::vector<worker*>& workers() const { return plain_workers_; }
    worker& lookup_worker() const { return lookups_.worker(); }
    const std::vector<std::unique_ptr<worker>>& isolated_workers() const { return isolated_.workers(); }

  private:
    void run(session_slot& slot, std::vector<pending_write> writes);
    std::size_t index_of(const std::vector<lockcore::resource_name>& resources) const;

    catalog_store& catalogs_;
    memory_budget& answers_;
    commit_flush& flush_;
    isolated_write_executor isolated_;
    batch_callbacks callbacks_;
    group_refusals refused_;
    batch_sizes sizes_;
    std::vector<std::unique_ptr<batch_worker<pending_write>>> workers_;
    std::vector<worker*> plain_workers_;  ///< The workers of workers_.
    batch_worker<pending_lookup> lookups_;
};

}  // namespace fencegate::pg
