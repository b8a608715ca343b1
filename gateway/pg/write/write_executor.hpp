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

/// Where writes go that leave their batch, and those that wait for the disk.
struct batch_outlets {
    std::function<void(pending_write)> isolate;  ///< To a worker of their own kind.
    std::function<void(committed_transaction)> await_durable;
    std::function<bool(std::size_t writes, bool sealed)> defers_flush;  ///< Whether COMMIT is not to wait itself.
};

/// Runs one shared transaction and answers each of its writes, or hands it on. Writes that leave it are run isolated
/// here, where they did not run into a timeout.
void run_and_answer_batch(write_session& session, catalog_source& catalogs, memory_budget& answers,
                          std::vector<pending_write> batch, group_refusals& refused,
                          const batch_outlets& outlets) noexcept;

/// Runs guarded writes: plan (transaction_plan.hpp) → execute (transaction_run.hpp) → evaluate
/// (transaction_result.hpp).
///
/// A resource always goes to the same worker, so that its writes keep their order of arrival. Writes that wait for a
/// worker share a transaction, and the wait for the disk with all others (commit_flush.hpp); those that call functions
/// or wait for locks go to isolated_write_executor, each by itself.
/// Threads: member functions may be called from any thread; awaitables resume on their caller's executor.
/// Limits:  postgres.connections workers, of which the first two take batches, as many isolated ones, and one that
/// looks
///          up kept outcomes; the latter connect when first needed. postgres.queue_max requests wait.
/// Cancel:  not supported; a write that was queued runs to its end.
class write_executor {
  public:
    write_executor(const postgres_config& cfg, std::atomic<std::size_t>& queued, catalog_store& catalogs,
                   memory_budget& answers, commit_flush& flush);

    /// One guarded write, all or nothing; it may share its transaction with others, which shows to nobody. Errors: see
    /// gateway/pg/connection/sqlstate_map.hpp; stale_fencing_token, resource_not_covered, expectation_failed,
    /// constraint_violation, write_conflict, unprocessable, fencing_required; overloaded, where the answers' budget has
    /// no room for its rows. A commit whose answer was lost is looked
    /// up by write_id first; only where that fails too does outcome_unknown stand. With an idempotency key the outcome
    /// of the first write may come, `replayed`; idempotency_mismatch, idempotency_in_progress. One that seals its token
    /// is answered as soon as others see it, so that its lease can go to the next one meanwhile; see await_durable.
    boost::asio::awaitable<result<committed_write>> write(write_request request, deadline until);

    /// Looks up the outcome kept under a principal's idempotency key, without taking the key: for a call that has more
    /// to do than to write, before it does that. A later write() may still find one.
    boost::asio::awaitable<result<found_outcome>> find_outcome(std::string principal, idempotency key, deadline until);

    /// The worker that writes on the first of the resources, for other work that must keep its order with them.
    worker& worker_of(const std::vector<lockcore::resource_name>& resources) const;
    /// For work that need not.
    worker& least_loaded_worker() const;

    const batch_sizes& batches() const { return sizes_; }
    const std::vector<worker*>& workers() const { return all_; }
    worker& lookup_worker() const { return lookups_.worker(); }
    const std::vector<std::unique_ptr<worker>>& isolated_workers() const { return isolated_.workers(); }

  private:
    void run(session_slot& slot, std::vector<pending_write> writes);
    std::size_t index_of(const std::vector<lockcore::resource_name>& resources) const;

    catalog_store& catalogs_;
    memory_budget& answers_;
    commit_flush& flush_;
    isolated_write_executor isolated_;
    batch_outlets outlets_;
    group_refusals refused_;
    batch_sizes sizes_;
    std::vector<std::unique_ptr<batch_worker<pending_write>>> workers_;
    std::vector<worker*> all_;  ///< Of workers_.
    batch_worker<pending_lookup> lookups_;
};

}  // namespace fencegate::pg
