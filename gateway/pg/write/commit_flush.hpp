#pragma once

#include <gateway/pg/executor/batch_worker.hpp>
#include <gateway/pg/read/snapshot_state.hpp>
#include <gateway/pg/write/write_session.hpp>

#include <boost/asio/awaitable.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::pg {

/// A write that was committed, and whoever waits until it is on disk.
struct undurable_write {
    std::string write_id;
    std::string resource;
    deadline until;
    std::shared_ptr<waiting_caller> caller;
    std::function<void(const std::optional<failure>&)> answer;  ///< Empty: it is on disk.
};

/// The writes of one transaction that is committed but perhaps not on disk yet. All of them share its fate, and the
/// first one's write_id stands for it.
struct committed_transaction {
    std::chrono::steady_clock::time_point begun;  ///< At any rate before its COMMIT.
    std::vector<undurable_write> writes;
};

/// What waits until it is known to be durable: a transaction, or what a snapshot showed.
struct pending_durability {
    /// A moment at which the server ran, and before which it had committed what is waited for (a snapshot), or after
    /// which (a transaction).
    std::chrono::steady_clock::time_point since;
    deadline until;
    std::shared_ptr<waiting_caller> caller;
    std::vector<undurable_write> writes;            ///< Of the transaction; none: a snapshot, and
    std::shared_ptr<waiting_for<bool>> snapshot{};  ///< who waits for it.
    std::shared_ptr<void> place{};                  ///< Counts it among the reads that wait.

    void refuse(failure why) noexcept;
    /// It is durable.
    void succeed();
    /// A crash has taken it back; of a snapshot, may have.
    void fail();
};

/// Waits for the disk in the place of the write workers: they commit with synchronous_commit = off, so that a
/// transaction holds its rows no longer than it needs for its work, and go on; here one small commit, as durable as the
/// server is set up to make it, takes with it all that was committed before, for the log is written in order. No caller
/// is answered earlier; only the lease of a one-shot write is released (committed_write.hpp).
///
/// What is lost by that: where the server crashes, rows of a write that nobody was told of may have been seen by others
/// for the few milliseconds before.
///
/// That commit proves something only about the same life of the server: a session that was there before the transaction
/// began. Behind any other each transaction is looked up by its write_id.
///
/// Errors:  where the connection breaks, it is looked up as well. Gone with a crash:
///          storage_unavailable, nothing was changed. Not to be found out, or committed without proof that it is on
///          disk: outcome_unknown.
/// Reads wait here too, where their snapshot showed what was not on disk yet. For them alone nothing is committed where
/// the whole log has reached the disk meanwhile and no standby has to confirm it.
///
/// Limits:  queue_max jobs wait, at most half of them reads: more are refused with overloaded.
/// Threads: safe.
class commit_flush {
  public:
    explicit commit_flush(const postgres_config& cfg);

    /// Whether transactions may be left to it; false once the server has refused it the means.
    bool serves() const { return serves_.load(std::memory_order_relaxed); }
    /// Whether others wait for the disk already.
    bool busy() const { return flusher_.worker().load() > 0; }

    /// Answers the writes when they are durable.
    void add(committed_transaction transaction);

    /// Whether all that a read has seen is known to be durable. Where transactions can't be left to this class none is
    /// visible before it is durable.
    bool is_durable(const snapshot_state& state) const;
    /// Waits until all is durable that was visible at `taken`, a moment at which the server that was read ran. False: a
    /// crash may have taken it back since; to be read again.
    boost::asio::awaitable<result<bool>> await_durable(std::chrono::steady_clock::time_point taken, deadline until);
    /// The same behind what can't simply be done again. Empty: it is durable.
    boost::asio::awaitable<std::optional<failure>> require_durable(std::chrono::steady_clock::time_point taken,
                                                                   deadline until);
    /// The same for whoever waits.
    void add(std::chrono::steady_clock::time_point taken, deadline until, std::shared_ptr<waiting_for<bool>> caller);

    /// Makes durable what all of `work` wait for, and answers each. The flush worker calls it.
    void flush(write_session& session, std::vector<pending_durability> work);

    pg::worker& worker() const { return flusher_.worker(); }

  private:
    bool commit_marker(write_session& session, bool always);

    const std::size_t reads_max_;
    std::atomic<bool> serves_{true};
    std::atomic<std::size_t> reads_{0};  ///< That wait.
    mutable std::mutex mutex_;
    std::uint64_t proven_end_ = 0;  ///< Every visible transaction below this id is durable, standbys included,
    std::chrono::steady_clock::time_point proven_at_{};  ///< as a commit has shown that was sent then.
    std::atomic<std::size_t> queued_{0};  ///< Not the pool's: what is committed must not be refused a place.
    batch_worker<pending_durability> flusher_;
};

}  // namespace fencegate::pg
