#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/connection/session_slot.hpp>
#include <gateway/pg/connection/write_session.hpp>
#include <gateway/pg/executor/job.hpp>
#include <gateway/pg/executor/worker.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/experimental/concurrent_channel.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace fencegate::pg {

enum class commit_status { committed, not_committed, unknown };

/// Finds out on a new session whether a write was committed whose COMMIT was not answered. If it was, it is on disk,
/// and on the standbys of synchronous_standby_names (statement_timeout does not end that wait).
///
/// Out:     `unknown`: PostgreSQL did not answer in time; the history answers later, by write_id.
/// Timeout: `until` and silence_max.
/// Source:  docs/guard.md; fencing.write_landed first locks the guard row, and so waits until the broken transaction
///          has ended: begin_write answered on that connection, so the transaction holds that lock.
commit_status resolve_commit(write_session& session, const std::string& write_id, const std::string& resource,
                             deadline until);

/// Commits the session's transaction. Where the connection breaks during COMMIT, finds out whether it was committed
/// (resolve_commit).
///
/// In:      `write_id` and `resource` of any write of the transaction.
/// Out:     `committed`: it is on disk, and on the standbys of synchronous_standby_names (statement_timeout does not
///          end that wait), unless the transaction has turned synchronous_commit off. `not_committed`: nothing was
///          changed.
/// Errors:  throws statement_failed where PostgreSQL refused and rolled back (deferred constraints and triggers).
/// Timeout: `until` and silence_max.
commit_status commit_write(write_session& session, const std::string& write_id, const std::string& resource,
                           deadline until);

/// Returns the failure for the callers of a write; empty for `committed`.
std::optional<failure> failure_of(commit_status status);

/// Lets a coroutine wait until its write is on disk, after it was answered that the write is visible. The first answer
/// counts.
///
/// Threads: answer() and give_up() from any thread; one coroutine calls wait(), once.
class durability_waiter final : public waiting_caller {
  public:
    explicit durability_waiter(const boost::asio::any_io_executor& executor) : signal_(executor, 1) {}

    /// Answers the waiting coroutine. Empty: the write is on disk.
    void answer(std::optional<failure> why);
    void give_up(bool unchanged) noexcept override;

    /// Out:    empty: the write is on disk.
    /// Errors: storage_unavailable where a crash undid the write; nothing was changed. outcome_unknown where that could
    ///         not be found out.
    /// Cancel: not supported.
    boost::asio::awaitable<std::optional<failure>> wait();

  private:
    std::atomic<bool> answered_{false};
    std::optional<failure> failure_;
    boost::asio::experimental::concurrent_channel<void(boost::system::error_code)> signal_;
};

/// A committed write. Other transactions see it; its caller must not be answered before it is on disk.
struct committed_write {
    write_outcome outcome;
    std::shared_ptr<durability_waiter> durability{};  ///< Null: the write is on disk.
};

/// A write that was committed, and the caller that waits until it is on disk.
struct undurable_write {
    std::string write_id;
    std::string resource;
    deadline until;
    std::shared_ptr<waiting_caller> caller{};
    std::function<void(const std::optional<failure>&)> answer{};  ///< Called with an empty failure when it is on disk.
};

/// The writes of one transaction that is committed but perhaps not on disk yet. They are durable together or not at
/// all, so the write_id of the first one identifies the transaction.
struct committed_transaction {
    std::chrono::steady_clock::time_point begun;  ///< A moment before COMMIT.
    std::vector<undurable_write> writes;
};

/// How much of what a read has seen a crash of PostgreSQL could undo: commits with synchronous_commit = off are visible
/// before they are on disk.
struct snapshot_state {
    enum class durability {
        durable,    ///< The read ended with a commit of its own that waited for the disk.
        flushed,    ///< The write-ahead log was on disk up to its end, and no standby has to confirm it.
        unflushed,  ///< Part of the write-ahead log was not on disk yet.
        replicated  ///< synchronous_standby_names is set: the local disk proves nothing.
    };
    durability seen = durability::unflushed;
    std::uint64_t transaction_end = 0;  ///< The snapshot shows no transaction with this id or a later one.
    std::chrono::steady_clock::time_point server_ran_at{};    ///< A moment before the state of the log was read.
    std::chrono::steady_clock::time_point connected_since{};  ///< When the reading session was connected.
};

/// The result of a read, or a refusal that follows from what it saw, with the state of the snapshot.
template <class T>
struct snapshot_of {
    snapshot_of() = default;
    snapshot_of(result<T> read, snapshot_state seen) : value(std::move(read)), state(seen) {}

    result<T> value;
    snapshot_state state;
};

/// Returns the statement that reads the state of the log, one row for read_snapshot_state. It has to run after the
/// read, in the same transaction or a later one.
const std::string& snapshot_state_sql();

/// Reads that row. `sent_at`: a moment before the statement was sent.
snapshot_state read_snapshot_state(const session_slot& slot, const answer_rows& rows,
                                   std::chrono::steady_clock::time_point sent_at);

/// Reads the state in a round trip of its own. Throws as session::exec does.
snapshot_state fetch_snapshot_state(session_slot& slot);

/// A read that waits until what its snapshot showed is durable.
struct undurable_read {
    std::shared_ptr<caller_awaiting<bool>> caller;
    std::shared_ptr<void> read_count{};  ///< Counts it among the waiting reads.
};

/// Data that has to become durable.
struct pending_durability {
    /// The data is lost only if the server crashes after this moment: one before the commit of the transaction, or
    /// after the commits that the snapshot showed.
    std::chrono::steady_clock::time_point server_ran_at;
    deadline until;
    std::shared_ptr<waiting_caller> caller;
    std::variant<std::vector<undurable_write>, undurable_read> data{};  ///< A transaction, or a snapshot.

    bool is_transaction() const { return std::holds_alternative<std::vector<undurable_write>>(data); }
    /// The write that identifies the transaction.
    const undurable_write& first_write() const { return std::get<std::vector<undurable_write>>(data).front(); }

    /// Answers that no proof is sought. `why` is for a snapshot; of a transaction, which is committed, nothing more is
    /// known than that.
    void refuse(failure why) noexcept;
    /// Answers that the data is durable.
    void succeed();
    /// Answers that a crash has undone the transaction, or may have undone what the snapshot showed.
    void fail();

  private:
    /// Answers the writes of a transaction; of a snapshot, its caller.
    void answer(const std::optional<failure>& of_writes, result<bool> of_snapshot);
};

/// Waits for the disk instead of the write workers. They commit with synchronous_commit = off, so that a transaction
/// holds its locks no longer than its work takes, and continue with the next batch. One small commit here, as durable
/// as the server is configured to make it, makes all earlier commits durable, because the write-ahead log is written in
/// order. No caller is answered before that; only the lease of a one-shot write is released earlier
/// (committed_write).
///
/// The price: where the server crashes, other transactions may have seen rows of an unanswered write for the few
/// milliseconds before the crash.
///
/// The commit proves something only if the server has not crashed since the transaction began: if the session was
/// connected before that. Else each transaction is looked up by its write_id.
///
/// Reads wait here too, where their snapshot showed data that was not on disk yet. For reads alone nothing is committed
/// where the whole log has reached the disk meanwhile and no standby has to confirm it.
///
/// Errors:  storage_unavailable where a crash undid the transaction; nothing was changed. outcome_unknown where that
///          could not be found out, or where no proof was found that the transaction is on disk. Where the connection
///          breaks, transactions are looked up.
/// Limits:  queue_max jobs wait, at most half of them reads: more are refused with overloaded.
/// Threads: safe.
class group_commit {
  public:
    explicit group_commit(const postgres_config& cfg);

    /// Whether write workers may leave the wait to this class; false once the server refused pg_logical_emit_message.
    bool is_available() const { return available_.load(std::memory_order_relaxed); }
    /// Whether some work waits for the disk already.
    bool is_busy() const { return flusher_.load() > 0; }

    /// Answers the writes when they are durable.
    void add(committed_transaction transaction);

    /// Whether everything that a read has seen is known to be durable. Where is_available() is false, no transaction is
    /// visible before it is durable.
    bool is_durable(const snapshot_state& state) const;
    /// Waits until everything that is visible now is durable.
    ///
    /// In:  `server_ran_at`: a moment at which the server ran that the caller has read from.
    /// Out: false where a crash may have undone something since then; then the caller has to read again.
    boost::asio::awaitable<result<bool>> await_durable(std::chrono::steady_clock::time_point server_ran_at,
                                                       deadline until);
    /// Waits as await_durable does, for a caller that can't read again.
    ///
    /// Out: empty where everything is durable.
    boost::asio::awaitable<std::optional<failure>> require_durable(std::chrono::steady_clock::time_point server_ran_at,
                                                                   deadline until);
    /// Answers the caller as await_durable does.
    void answer_when_durable(std::chrono::steady_clock::time_point server_ran_at, deadline until,
                             std::shared_ptr<caller_awaiting<bool>> caller);

    /// Makes durable what `work` waits for, and answers every item. Called by the flush worker.
    void run_batch(write_session& session, std::vector<pending_durability> work);

    pg::worker& worker() { return flusher_; }
    const work_times& times() const { return queued_.times(); }

  private:
    void submit(pending_durability work);
    bool flush(write_session& session, bool has_writes);

    const std::size_t reads_max_;
    std::atomic<bool> available_{true};
    std::atomic<std::size_t> reads_{0};  ///< Number of waiting reads.
    mutable std::mutex mutex_;
    std::uint64_t proven_end_ = 0;  ///< Every visible transaction below this id is durable, on the standbys too.
    std::chrono::steady_clock::time_point proven_at_{};  ///< When the commit that showed this was sent.
    /// Not shared with other workers, whose full queues must not refuse committed writes.
    queued_jobs queued_;
    pg::worker flusher_;
};

}  // namespace fencegate::pg
