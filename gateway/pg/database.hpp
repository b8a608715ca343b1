#pragma once

#include <gateway/config/config.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/history_item.hpp>
#include <gateway/domain/memory_budget.hpp>
#include <gateway/domain/table_read.hpp>
#include <gateway/pg/executor/job.hpp>
#include <gateway/pg/history/history_reader.hpp>
#include <gateway/pg/read/read_pool.hpp>
#include <gateway/pg/schema/cluster.hpp>
#include <gateway/pg/write/write_executor.hpp>

#include <lockcore/types.hpp>

#include <boost/asio/awaitable.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace fencegate::pg {

/// The worker that runs some work on a session.
class worker_choice {
  public:
    /// The write worker with the least load, for work of the gateway itself that needs no order.
    static worker_choice any_worker() { return worker_choice(kind::any_worker); }
    /// An isolated worker, in whose queue later writes on the resources wait too, within the share of a principal.
    static worker_choice in_order(std::vector<lockcore::resource_name> resources, std::string principal) {
        worker_choice out(kind::in_order);
        out.resources_ = std::move(resources);
        out.principal_ = std::move(principal);
        return out;
    }
    /// A worker for the history, for work of the gateway itself.
    static worker_choice history() { return worker_choice(kind::history); }

  private:
    friend class database;
    enum class kind { any_worker, in_order, history };

    explicit worker_choice(kind k) : kind_(k) {}

    kind kind_;
    std::vector<lockcore::resource_name> resources_{};
    std::string principal_{};
};

/// The workers of a database at one moment.
struct executor_status {
    std::size_t workers = 0;       ///< Write workers; workers that connect only when they are needed do not count.
    std::size_t disconnected = 0;  ///< Write workers whose last attempt to connect failed.
    std::size_t busy = 0;          ///< Write workers with work under way or queued.
    std::size_t queued = 0, queue_max = 0;
};

/// Builds, starts and stops everything that runs on PostgreSQL, and runs work on its sessions.
///
/// Threads: member functions may be called from any thread; awaitables resume on their caller's executor.
/// Errors:  common to all work: errc::storage_unavailable (nothing was changed, unless outcome_unknown says otherwise),
///          errc::overloaded (a queue is full) and too_many_requests (the share of the principal is used).
/// Timeout: `until`: errc::storage_unavailable. Work that has not begun by then does not begin; statement_timeout ends
///          work under way; where PostgreSQL does not answer for half a second longer, the connection is cut and the
///          caller is answered.
/// Limits:  those of write_executor; postgres.connections workers for reads of tables and functions, and three for the
///          history, which principals share (read_pool.hpp), so that a slow read delays no write; they are connected
///          when first needed. One connection waits for the disk, and one listens for changes of the catalog. Once
///          PostgreSQL is known to be unreachable, only what waits for the disk is queued.
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

    /// Runs `work` with a session, once more on a new one where the first was lost or has outdated statements; so it
    /// may run twice. It may change something: outcome_unknown where the connection broke.
    ///
    /// In:  `work`: T(session&).
    /// Out: awaitable<result<T>>.
    template <class Work>
    auto run(worker_choice where, deadline until, Work work);

    /// Runs work that must not run twice, or decides that itself.
    template <class T>
    boost::asio::awaitable<result<T>> run_once(worker_choice where, deadline until, typename session_job<T>::work work);

    /// Reads the history: runs `work` as run() does, and waits until all that it read is on disk (read_pool.hpp). It
    /// changes nothing.
    template <class Work>
    auto read(std::string principal, read_cost cost, deadline until, Work work);

    /// Reads a page of the history.
    boost::asio::awaitable<result<history_page>> read_history(std::string principal, read_cost cost,
                                                              history_query query, deadline until);

    /// Reads rows of a table or the value of a function, fenced or not, within the share of the principal; see
    /// table_reader.hpp.
    boost::asio::awaitable<result<read_outcome>> read_rows(std::string principal, read_request request, deadline until);

    /// Raises fences to at least the token, and never lowers one; later writes on the resources wait for it. A read
    /// fence stays where the last writer's token is higher. The history records fence_raised.
    boost::asio::awaitable<result<std::vector<fence_state>>> raise_fences(fences_to_raise wanted, actor initiator,
                                                                          std::string reason, deadline until);

    /// Sets a fence, also to a lower token, and returns it; later writes on the resource wait for it. The history
    /// records fence_raised with `repair`.
    boost::asio::awaitable<result<fence_state>> repair_fence(lockcore::resource_name resource,
                                                             lockcore::fencing_token new_fence, actor initiator,
                                                             std::string reason, deadline until);

    /// Makes a round trip to the server over a connection for writes and checks that it accepts them; for readiness.
    /// One round trip answers all who call it meanwhile or within 200 ms afterwards.
    boost::asio::awaitable<result<void>> ping(deadline until);

    executor_status status() const;
    const batch_sizes& batches() const;
    /// How long workers took, by what they do: writes, reads, history, flush.
    std::vector<std::pair<std::string_view, const work_times*>> times() const;

  private:
    struct impl;

    void submit(const worker_choice& where, std::unique_ptr<job> work);
    read_pool& history_pool();
    group_commit& flush();

    std::unique_ptr<impl> impl_;
};

template <class Work>
auto database::run(worker_choice where, deadline until, Work work) {
    using value = std::invoke_result_t<Work&, session&>;
    auto repeatable = [work = std::move(work)](session_slot& slot) -> result<value> {
        if constexpr (std::is_void_v<value>) {
            retry_once_on_new_session(slot, work);
            return {};
        } else {
            return retry_once_on_new_session(slot, work);
        }
    };
    return run_once<value>(std::move(where), until, std::move(repeatable));
}

template <class T>
boost::asio::awaitable<result<T>> database::run_once(worker_choice where, deadline until,
                                                     typename session_job<T>::work work) {
    auto principal = where.principal_;
    return await_work<T>(
        effect::by_statement, until, std::move(work),
        [this, where = std::move(where)](std::unique_ptr<job> made) { submit(where, std::move(made)); },
        std::move(principal));
}

template <class Work>
auto database::read(std::string principal, read_cost cost, deadline until, Work work) {
    using value = std::invoke_result_t<Work&, session&>;
    auto read = [work = std::move(work)](session_slot& slot) -> result<snapshot_of<value>> {
        auto found = retry_once_on_new_session(slot, work);
        return snapshot_of<value>(std::move(found), fetch_snapshot_state(slot));
    };
    return read_durably<value>(history_pool(), flush(), std::move(principal), cost, until, std::move(read));
}

}  // namespace fencegate::pg
