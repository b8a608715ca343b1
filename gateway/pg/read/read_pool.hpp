#pragma once

#include <gateway/domain/table_read.hpp>
#include <gateway/pg/executor/job.hpp>
#include <gateway/pg/executor/worker.hpp>
#include <gateway/pg/write/group_commit.hpp>

#include <chrono>
#include <cstddef>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::pg {

/// How many reads may run and wait.
struct read_limits {
    std::size_t workers = 1;
    std::size_t running_per_principal = 1;
    std::size_t running_expensive = 1;  ///< Of all principals.
    std::size_t running_expensive_per_principal = 1;
    std::size_t waiting = 1;  ///< More are refused with overloaded.
    std::size_t waiting_per_principal = 1;
    std::size_t waiting_expensive_per_principal = 1;
};

/// Returns the limits for reads of tables and functions: postgres.connections workers, of which one principal uses at
/// most three quarters.
read_limits table_read_limits(const postgres_config& cfg);
/// Returns the limits for reads of the history: three workers. One principal uses at most two of them; expensive reads
/// use at most two, one for each principal.
read_limits history_read_limits(const postgres_config& cfg);

/// Workers for reads. Principals take turns; a principal uses only a part of the workers, and so do expensive reads, so
/// that neither delays a cheap read of another principal. A worker gets one read at a time; the other reads wait here.
///
/// They don't wait in a job_queue: which read is next depends on those that run, of its principal and of all, while a
/// worker runs whatever is first in its queue. So an entry here outlives the waiting reads of its principal, with its
/// turn and its counts.
///
/// Errors:  too_many_requests where too many reads of the principal wait, overloaded where too many reads wait in all;
///          those of worker::submit.
/// Limits:  read_limits. The empty principal, which is the gateway itself, has no limits of its own.
/// Threads: safe.
class read_pool {
  public:
    read_pool(const postgres_config& cfg, read_limits limits);
    read_pool(const read_pool&) = delete;
    read_pool& operator=(const read_pool&) = delete;

    void submit(const std::string& principal, read_cost cost, std::unique_ptr<job> work);

    /// Refuses waiting reads whose deadline has passed.
    void enforce_deadlines(std::chrono::steady_clock::time_point now);

    std::size_t waiting() const;
    const work_times& times() const { return queued_.times(); }
    const std::vector<std::unique_ptr<worker>>& workers() const { return workers_; }

  private:
    struct waiting_read {
        read_cost cost;
        std::unique_ptr<job> work;
    };
    struct principal_reads {
        std::string principal;
        std::deque<waiting_read> waiting;
        std::size_t waiting_expensive = 0;
        std::size_t running = 0;
        std::size_t running_expensive = 0;
    };
    class running_read;

    std::optional<failure> check_limits(const principal_reads& entry, read_cost cost) const;
    principal_reads& find_or_add_reads(const std::string& principal);
    std::optional<std::size_t> idle_worker() const;
    std::unique_ptr<running_read> take_next_read();
    void dispatch();
    void finish_read(principal_reads& entry, read_cost cost, std::size_t worker_index);

    const read_limits limits_;
    queued_jobs queued_;  ///< Reads queued at the workers themselves, at most one each.
    mutable std::mutex mutex_;
    std::list<principal_reads> reads_by_principal_;  ///< Least recently served first; only principals with reads.
    std::vector<bool> busy_;                         ///< By worker.
    std::size_t waiting_ = 0;
    std::size_t running_expensive_ = 0;
    bool dispatching_ = false;
    std::vector<std::unique_ptr<worker>> workers_;  ///< Destroyed first, because their jobs refer to the other members.
};

/// Whether the failure says nothing about the data in the database.
inline bool reveals_no_data(const failure& why) {
    return why.code != errc::unprocessable && why.code != errc::stale_fencing_token;
}

/// Reads on a worker of `pool`, and returns the result once everything that its snapshot showed is on disk, so that no
/// crash undoes what an answer said. The read's own round trip asks whether that is so already; then nothing waits.
/// Where a crash may have undone what it saw, it reads once more.
template <class T>
boost::asio::awaitable<result<T>> read_durably(read_pool& pool, group_commit& flush, std::string principal,
                                               read_cost cost, deadline until,
                                               typename session_job<snapshot_of<T>>::work read) {
    const auto submit = [&pool, principal = std::move(principal), cost](std::unique_ptr<job> work) {
        pool.submit(principal, cost, std::move(work));
    };
    for (bool first = true;; first = false) {
        auto seen = co_await await_work<snapshot_of<T>>(effect::none, until, read, submit);
        if (!seen) co_return seen.error();
        const bool no_data = !seen->value && reveals_no_data(seen->value.error());
        if (no_data || flush.is_durable(seen->state)) co_return std::move(seen->value);
        const auto durable = co_await flush.await_durable(seen->state.server_ran_at, until);
        if (!durable) co_return durable.error();
        if (*durable) co_return std::move(seen->value);
        if (!first) co_return unavailable("PostgreSQL stopped before what was read was on disk; read it again.");
    }
}

}  // namespace fencegate::pg
