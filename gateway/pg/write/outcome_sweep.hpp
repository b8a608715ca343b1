#pragma once

#include <gateway/pg/executor/worker.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>

namespace fencegate::pg {

/// Most outcomes deleted at a time: some milliseconds for the worker that does it.
inline constexpr std::size_t sweep_max = 500;
/// How long the next time waits when there was nothing left to delete.
inline constexpr std::chrono::milliseconds sweep_interval{5'000};

/// Decides when outcomes whose time is over are deleted: a batch every now and then, one behind the other while there
/// are more. Each gateway does so; they pass over each other's rows.
///
/// Threads:  due() is one thread's; the work may run on another.
/// Lifetime: outlives the work that it gave out.
class outcome_sweep {
  public:
    /// The next batch, if its time has come and the last one has ended.
    std::unique_ptr<job> due(std::chrono::steady_clock::time_point now);

  private:
    class batch;

    std::atomic<bool> under_way_{false};
    std::atomic<bool> more_{false};  ///< The last batch was full.
    std::chrono::steady_clock::time_point last_{};
};

}  // namespace fencegate::pg
