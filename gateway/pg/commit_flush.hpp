#pragma once

#include <gateway/pg/snapshot_state.hpp>
#include <gateway/pg/worker.hpp>
#include <gateway/pg/write_batcher.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace fencegate::pg {

/// The writes of one transaction that is committed but perhaps not on disk yet. All of them share its fate, and the
/// first one's write_id stands for it.
struct committed_writes {
    std::chrono::steady_clock::time_point begun;  ///< The transaction; at any rate before its COMMIT.
    std::vector<std::pair<std::unique_ptr<write_job>, write_outcome>> writes;
};

/// A read, or a kept outcome, whose answer waits until what its snapshot showed is durable.
class snapshot_job : public job {
  public:
    /// `taken`: a moment at which the server that was read ran, and before which it had committed what was seen.
    snapshot_job(deadline until, std::chrono::steady_clock::time_point taken) : job(until), taken_(taken) {}

    /// True: it is durable. False: a crash may have taken it back since; to be read again.
    virtual void answer(result<bool> durable) noexcept = 0;
    void run(session_slot&) noexcept final {}
    void refuse(failure why) noexcept final { answer(std::move(why)); }
    bool shares() const final { return true; }

    std::chrono::steady_clock::time_point taken() const { return taken_; }

    /// Counts it among the reads that wait, as long as it lives.
    std::shared_ptr<void> place;

  private:
    std::chrono::steady_clock::time_point taken_;
};

/// Waits for the disk in the place of the write workers: they commit with synchronous_commit = off, so that a
/// transaction holds its rows no longer than it needs for its work, and go on; here one small commit, as durable as the
/// server is set up to make it, takes with it all that was committed before, for the log is written in order. No caller
/// is answered earlier; only the lease of a job in one call is let go (visible_write.hpp).
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
    bool busy() const { return worker()->load() > 0; }

    void answer_when_on_disk(committed_writes writes);

    /// Whether all that a read has seen is known to be durable. Where transactions can't be left to this class none is
    /// visible before it is durable.
    bool is_durable(const snapshot_state& state) const;
    void answer_when_durable(std::unique_ptr<snapshot_job> read);

    /// One, for the pool to start and end with the others.
    const std::vector<std::unique_ptr<pg::worker>>& workers() const { return workers_; }

  private:
    const std::unique_ptr<pg::worker>& worker() const { return workers_.front(); }
    void flush(session_slot& slot, std::vector<std::unique_ptr<job>> work);
    bool commit_marker(session_slot& slot, bool always);

    const std::size_t reads_max_;
    std::atomic<bool> serves_{true};
    std::atomic<std::size_t> reads_{0};  ///< That wait.
    mutable std::mutex mutex_;
    std::uint64_t proven_end_ = 0;  ///< Every visible transaction below this id is durable, standbys included,
    std::chrono::steady_clock::time_point proven_at_{};  ///< as a commit has shown that was sent then.
    std::atomic<std::size_t> queued_{0};  ///< Not the pool's: what is committed must not be refused a place.
    std::vector<std::unique_ptr<pg::worker>> workers_;
};

}  // namespace fencegate::pg
