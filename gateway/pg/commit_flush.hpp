#pragma once

#include <gateway/pg/worker.hpp>
#include <gateway/pg/write_batcher.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace fencegate::pg {

/// The writes of one transaction that is committed but perhaps not on disk yet. All of them share its fate, and the
/// first one's write_id stands for it.
struct committed_writes {
    std::chrono::steady_clock::time_point begun;  ///< The transaction; at any rate before its COMMIT.
    std::vector<std::pair<std::unique_ptr<write_job>, write_outcome>> writes;
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
/// Threads: safe.
class commit_flush {
  public:
    explicit commit_flush(const postgres_config& cfg);

    /// Whether transactions may be left to it; false once the server has refused it the means.
    bool serves() const { return serves_.load(std::memory_order_relaxed); }
    /// Whether others wait for the disk already.
    bool busy() const { return worker()->load() > 0; }

    void answer_when_on_disk(committed_writes writes);

    /// One, for the pool to start and end with the others.
    const std::vector<std::unique_ptr<pg::worker>>& workers() const { return workers_; }

  private:
    const std::unique_ptr<pg::worker>& worker() const { return workers_.front(); }
    void flush(session_slot& slot, std::vector<std::unique_ptr<job>> work);

    std::atomic<bool> serves_{true};
    std::atomic<std::size_t> queued_{0};  ///< Not the pool's: what is committed must not be refused a place.
    std::vector<std::unique_ptr<pg::worker>> workers_;
};

}  // namespace fencegate::pg
