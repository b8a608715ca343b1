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

/// Builds, starts and stops everything that runs on PostgreSQL; the executors do the work.
///
/// Threads: member functions may be called from any thread; awaitables resume on their caller's executor.
/// Errors:  common to all executors: errc::storage_unavailable (nothing was changed, unless outcome_unknown says
///          otherwise) and errc::overloaded (a queue is full).
/// Timeout: `until`: errc::storage_unavailable. Work that has not begun by then does not begin; statement_timeout ends
///          work under way; where PostgreSQL does not answer for half a second longer, the connection is cut and the
///          caller is answered.
/// Limits:  those of the executors; one connection that waits for the disk, and one that listens for changes of the
///          catalog. While PostgreSQL is unreachable no work is queued.
/// Cancel:  not supported.
class database {
  public:
    /// `answers` is the budget from which the answers of reads and writes are reserved. It outlives the database.
    database(postgres_config cfg, memory_budget& answers);
    ~database();
    database(const database&) = delete;
    database& operator=(const database&) = delete;

    /// Connects and checks the schema. Blocks; used at start-up.
    ///
    /// Errors: storage_unavailable with the server's message.
    result<void> check();
    /// Compares the configuration with fencing.cluster, or writes it there. Blocks; used at start-up.
    ///
    /// Out: the cluster's answer_bound. Errors: invalid_request with the setting that differs.
    result<std::chrono::milliseconds> join_cluster(membership m);
    /// Starts the workers.
    void start();
    /// Accepts no more work, finishes the queued work and ends the threads. Blocks until `until` at most.
    void drain(deadline until);

    write_executor& writes();
    read_executor& reads();
    history_executor& history();
    fence_executor& fences();
    node_register& nodes();
    storage_register& storage();

    /// Makes a round trip to the server over a connection for writes and checks that it accepts them; for readiness. One
    /// round trip answers all who call it meanwhile or within 200 ms afterwards.
    boost::asio::awaitable<result<void>> ping(deadline until);

    executor_status status() const;
    const batch_sizes& batches() const;

  private:
    struct impl;
    std::unique_ptr<impl> impl_;
};

}  // namespace fencegate::pg
