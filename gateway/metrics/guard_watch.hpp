#pragma once

#include <gateway/pg/database.hpp>

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::metrics {

/// Asks PostgreSQL once an interval for the state of the guard, and what would let a change past it (fencing.watch_guard,
/// which also records new faults in the history), keeps the latest answer, and logs new faults.
///
/// Threads:  latest() from any thread.
/// Limits:   two queries of some 100 ms, one after the other, on a connection for the history.
/// Lifetime: the database outlives the run of `io`.
class guard_watch {
  public:
    struct finding {
        guard_report report;
        std::chrono::system_clock::time_point at;  ///< When PostgreSQL answered.
    };

    guard_watch(pg::database& database, std::chrono::milliseconds interval, boost::asio::io_context& io);
    ~guard_watch();

    /// Begins, on `io`.
    void start();
    /// Returns the latest answer; empty before the first one.
    std::optional<finding> latest() const;

  private:
    struct impl;
    std::shared_ptr<impl> impl_;  ///< Shared with the coroutine.
};

}  // namespace fencegate::metrics
