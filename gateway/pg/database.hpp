#pragma once

#include <gateway/config/config.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/memory_budget.hpp>
#include <gateway/pg/executor/executor_status.hpp>
#include <gateway/pg/executor/membership.hpp>
#include <gateway/pg/history/history_executor.hpp>
#include <gateway/pg/read/read_executor.hpp>
#include <gateway/pg/write/fence_executor.hpp>
#include <gateway/pg/write/write_executor.hpp>

#include <boost/asio/awaitable.hpp>

#include <memory>

namespace fencegate::pg {

/// Builds, starts and ends all that runs on PostgreSQL; the executors do the work.
///
/// Threads: member functions may be called from any thread; awaitables resume on their caller's executor.
/// Errors common to all executors: errc::storage_unavailable (nothing changed, unless outcome_unknown says otherwise),
/// errc::overloaded (queue full).
/// Timeout: `until`: errc::storage_unavailable. Work that has not begun by then is not begun; work under way is ended
/// by
///          statement_timeout; a connection on which PostgreSQL is silent for half a second longer is cut, and its
///          caller is answered.
/// Limits:  the executors'; one connection that waits for the disk, and one that listens for changes of the catalog.
///          While PostgreSQL is away no work is queued. Cancel:  not supported.
class database {
  public:
    /// `answers`: what reads and writes answer is counted there, before it is kept. It outlives the database.
    database(postgres_config cfg, memory_budget& answers);
    ~database();
    database(const database&) = delete;
    database& operator=(const database&) = delete;

    /// Connects one worker and checks the schema, blocking; used at start-up. Errors: storage_unavailable with the
    /// server's words.
    result<void> check();
    /// Blocking; start-up. Errors: invalid_request with the line that differs from fencing.cluster.
    result<void> join_cluster(membership m);
    /// Starts the workers.
    void start();
    /// Takes no more work, finishes what is queued, ends the threads. Blocking, bounded by `until`.
    void drain(deadline until);

    write_executor& writes();
    read_executor& reads();
    history_executor& history();
    fence_executor& fences();
    node_register& nodes();

    /// A round trip, to a server that takes writes. For readiness.
    boost::asio::awaitable<result<void>> ping(deadline until);

    executor_status status() const;
    const batch_sizes& batches() const;

  private:
    struct impl;
    std::unique_ptr<impl> impl_;
};

}  // namespace fencegate::pg
