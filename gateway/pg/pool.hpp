#pragma once

#include <gateway/config/config.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/found_outcome.hpp>
#include <gateway/domain/history_item.hpp>
#include <gateway/domain/read_cost.hpp>
#include <gateway/domain/table_read.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/pool_status.hpp>
#include <gateway/pg/visible_write.hpp>

#include <lockcore/ports.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace fencegate::pg {

using deadline = std::chrono::steady_clock::time_point;

/// What a cluster's row in PostgreSQL must agree with.
struct membership {
    std::vector<std::string> node_names;
    std::size_t quorum = 0;
    std::chrono::milliseconds max_ttl{};
};

/// Runs work on PostgreSQL: K threads with one connection each and a bounded queue. A resource always goes to the same
/// worker, so that its writes keep their order of arrival. Writes that wait for a worker share a transaction
/// (write_batcher.hpp), and the wait for the disk with all others (commit_flush.hpp); those that call functions or wait
/// for locks go to as many workers beside, each alone. Reads have workers that principals share (read_lane.hpp).
///
/// Whatever is answered from a snapshot, kept outcomes included, is given only when all that the snapshot showed is on
/// disk: a crash takes nothing back that a caller was told. Where it is there already, which is asked in the read's own
/// round trip, nobody waits.
///
/// Threads: member functions may be called from any thread; awaitables resume on their caller's executor.
/// Errors common to all: errc::storage_unavailable (nothing changed, unless outcome_unknown says otherwise),
/// errc::overloaded (queue full). Timeout: `until`: errc::storage_unavailable. Work that has not begun by then is not
/// begun; a write under way is ended by statement_timeout; a
///          connection on which PostgreSQL is silent for half a second longer is cut, and its caller is answered.
/// Limits:  postgres.connections workers, as many beside and as many for reads, which connect when the first such work
/// comes, three for the history and one for looking up kept outcomes, as lazy; one that waits for the disk, and one
/// connection that listens for changes of the catalog; postgres.queue_max requests in the queues of each of: writes,
/// reads, the history; while PostgreSQL is away none is queued. Cancel:  not supported; a write that was queued runs to
/// its end.
class pool {
  public:
    /// `answers`: what reads and writes answer is counted there, before it is kept. It outlives the pool.
    pool(postgres_config cfg, memory_budget& answers);
    ~pool();
    pool(const pool&) = delete;
    pool& operator=(const pool&) = delete;

    /// Connects one worker and checks the schema, blocking; used at start-up. Errors: storage_unavailable with the
    /// server's words.
    result<void> check();
    /// Blocking; start-up. Errors: invalid_request with the line that differs from fencing.cluster.
    result<void> join_cluster(membership m);
    /// Starts the workers.
    void start();
    /// Takes no more work, finishes what is queued, ends the threads. Blocking, bounded by `until`.
    void drain(deadline until);

    /// One guarded write, all or nothing; it may share its transaction with others, which shows to nobody. Errors: see
    /// gateway/pg/sqlstate_map.hpp; stale_fencing_token, resource_not_covered, expectation_failed,
    /// constraint_violation, write_conflict, unprocessable, fencing_required; overloaded, where the answers' budget has
    /// no room for its rows. A commit whose answer was lost is looked up by write_id first; only where that fails too
    /// does outcome_unknown stand. With an idempotency key the outcome of the first write may come, `replayed`;
    /// idempotency_mismatch, idempotency_in_progress. One that seals its token is answered as soon as others see it, so
    /// that its lease can go to the next one meanwhile; see when_on_disk.
    boost::asio::awaitable<result<visible_write>> write(write_request request, deadline until);

    /// Rows of a table or the value of a function, fenced or not; see table_reader.hpp. By workers of its own, as many
    /// as write: however long it takes, it holds up no write. `principal`: whose share of them it takes. Errors:
    /// too_many_requests; overloaded, also where the answers' budget has no room for what was read.
    boost::asio::awaitable<result<read_outcome>> read(std::string principal, read_request request, deadline until);

    /// Looks up the outcome kept under a principal's idempotency key, without taking the key: for a call that has more
    /// to do than to write, before it does that. A later write() may still find one.
    boost::asio::awaitable<result<found_outcome>> find_outcome(std::string principal, idempotency under,
                                                               deadline until);

    /// Reads of the history have three connections of their own, made when the first comes, so that a slow one holds up
    /// no write; two of them take what is expensive, one for each principal. The empty principal is the gateway itself.
    /// Errors: too_many_requests.
    boost::asio::awaitable<result<history_page>> read_history(std::string principal, read_cost cost,
                                                              history_query query, deadline until);
    boost::asio::awaitable<result<history_tail>> read_history_tail(deadline until);
    boost::asio::awaitable<result<std::vector<history_count>>> summarize_history(std::string principal,
                                                                                 history_summary_query query,
                                                                                 deadline until);
    boost::asio::awaitable<result<resource_facts>> read_resource(std::string principal,
                                                                 lockcore::resource_name resource, deadline until);

    /// Makes partitions of the history ahead and drops the oldest that is older than `keep_days` (0: none). Errors:
    /// write_conflict where a lock was not to be had at once: nothing was done.
    boost::asio::awaitable<result<history_upkeep>> keep_history(unsigned keep_days, deadline until);

    /// What would let a change past the guard (fencing.guard_faults); empty where all is well.
    boost::asio::awaitable<result<std::vector<std::string>>> find_guard_faults(deadline until);

    /// Adds a batch to the history, all or none but for what is there already; gives how many were added. Where the
    /// connection breaks meanwhile: outcome_unknown, and the same batch may be sent again.
    boost::asio::awaitable<result<std::size_t>> append_history(std::shared_ptr<const history_batch> batch,
                                                               deadline until);

    /// Raises fences to at least `to`, never lowers one; fence_raised stands in the history. For fence_on_grant and
    /// sealing.
    boost::asio::awaitable<result<std::vector<fence_state>>> raise_fences(
        std::vector<lockcore::resource_name> resources, lockcore::fencing_token to, actor by, std::string reason,
        deadline until);

    /// Sets a fence, also to a lower token; fence_raised with `repair` stands in the history. The fence as it is now.
    boost::asio::awaitable<result<fence_state>> repair_fence(lockcore::resource_name resource,
                                                             lockcore::fencing_token to, actor by, std::string reason,
                                                             deadline until);

    /// docs/protocol.md R8b.
    boost::asio::awaitable<result<lockcore::drawn_epoch>> draw_epoch(lockcore::epoch_request request, deadline until);
    /// What the register knows of a node; and that its life did not sync every write.
    boost::asio::awaitable<result<lockcore::node_record>> find_node(std::string node_name, deadline until);
    boost::asio::awaitable<result<void>> note_unsynced(std::string node_name, deadline until);

    /// A round trip, to a server that takes writes. For readiness.
    boost::asio::awaitable<result<void>> ping(deadline until);

    pool_status status() const;
    const batch_sizes& batches() const;

  private:
    struct impl;
    std::unique_ptr<impl> impl_;
};

}  // namespace fencegate::pg
