#pragma once

#include <gateway/domain/write_request.hpp>
#include <gateway/pg/connection/write_session.hpp>
#include <gateway/pg/executor/job.hpp>
#include <gateway/pg/write/kept_outcome.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::pg {

/// A key whose kept outcome is to be looked up, and the caller that waits for it.
struct pending_lookup {
    outcome_key key;
    deadline until;
    std::shared_ptr<caller_awaiting<found_outcome>> caller;

    const std::string& principal() const { return key.principal; }
    void refuse(failure why) noexcept { caller->answer(std::move(why)); }
};

/// Looks up all keys in one round trip, once more on a new session where the first was lost, and answers each caller.
void look_up_batch(write_session& session, const std::vector<pending_lookup>& lookups);

/// Maximum number of outcomes deleted by one job, which takes some milliseconds of a worker's time.
inline constexpr std::size_t sweep_max = 500;
/// The pause after a job that found fewer expired outcomes than sweep_max.
inline constexpr std::chrono::milliseconds sweep_interval{5'000};

/// Decides when expired outcomes are deleted: one job per interval, and one after the other while there are more to
/// delete. Every gateway does this; they skip rows that another one is deleting.
///
/// Threads:  next_batch() from one thread; the job may run on another.
/// Lifetime: outlives its jobs.
class outcome_sweep {
  public:
    /// Returns the next job if it is due and the last one has ended; else null.
    std::unique_ptr<job> next_batch(std::chrono::steady_clock::time_point now);

  private:
    class batch;

    std::atomic<bool> under_way_{false};
    std::atomic<bool> more_{false};  ///< The last batch was full.
    std::chrono::steady_clock::time_point last_{};
};

}  // namespace fencegate::pg
