#pragma once

#include <gateway/domain/memory_budget.hpp>
#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/executor/worker.hpp>
#include <gateway/pg/write/write_transaction.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fencegate::pg {

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
///          overloaded, where rows or a value do not fit into `budget`.
/// Threads: the session's worker.
result<write_outcome> run_isolated(write_session& session, catalog_source& catalogs, memory_budget& budget,
                                   const write_request& request, deadline until);

/// Runs the write in a transaction of its own and answers its caller.
void run_and_answer(write_session& session, catalog_source& catalogs, memory_budget& budget,
                    pending_write& write) noexcept;

/// An isolated worker whose queue was joined.
struct joined_worker {
    worker& chosen;
    std::shared_ptr<void> ticket;  ///< Leaves the queue when it is destroyed.
};

/// Where later writes on the resources of an isolated write run, as long as that waits or runs.
enum class later_writes {
    in_batches,
    in_its_queue,
};

/// Workers for what must not delay others: writes that call a function, which may take any time, or whose lease shares
/// resources, writes that a batch did not take, because they waited for a lock or were refused, and changes of fences.
/// Each runs in a transaction of its own.
///
/// The writes of one principal use at most three quarters of the workers at a time, so that its slow functions do not
/// delay those of others; only a write whose resource has a queue joins that.
///
/// While such a write waits or runs, later writes on its resources join the same queue, where those of one principal
/// keep their order; they would wait for its guard row anyway. Not so those behind a write that a batch has only
/// refused: one refusal would keep a busy resource out of the batches.
///
/// It has no queue of its own and is no read_pool: a write has to enter the queue of a worker as soon as it arrives,
/// because that queue gives the order on its resources, while a read may wait for whichever worker becomes idle. What
/// waits, in turns and until its deadline, is up to the workers (job_queue, queued_jobs).
///
/// Threads: safe.
class isolated_write_executor {
  public:
    isolated_write_executor(const postgres_config& cfg, queued_jobs& queued, catalog_store& catalogs,
                            memory_budget& budget);

    /// Whether a write on one of the resources waits or runs here.
    bool has_writes_on(const std::vector<lockcore::resource_name>& resources) const;
    void submit(pending_write write, later_writes later);
    /// Chooses a worker for work on the resources, and joins its queue.
    joined_worker join(std::vector<lockcore::resource_name> resources, std::string principal);

    const std::vector<std::unique_ptr<worker>>& workers() const { return workers_; }

  private:
    struct resource_queue {
        std::size_t worker = 0;
        std::size_t writes = 0;
    };

    using writes_by_worker = std::vector<std::size_t>;

    std::size_t choose_worker(const std::vector<lockcore::resource_name>& resources,
                              const writes_by_worker& own_writes) const;
    void finish_write(const std::vector<lockcore::resource_name>& resources, const std::string& principal,
                      std::size_t worker);

    catalog_store& catalogs_;
    memory_budget& budget_;
    mutable std::mutex mutex_;
    std::map<std::string, resource_queue, std::less<>> queues_;  ///< By resource; only resources with writes.
    std::map<std::string, writes_by_worker> by_principal_;       ///< Only principals with writes.
    std::vector<std::unique_ptr<worker>> workers_;               ///< Destroyed first, because their jobs hold tickets.
};

}  // namespace fencegate::pg
