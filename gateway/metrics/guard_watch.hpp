#pragma once

#include <gateway/pg/history/history_executor.hpp>

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::metrics {

/// Asks PostgreSQL every half minute what would let a change past the guard (fencing.guard_faults), and keeps the
/// latest answer; what is new in it goes to the log.
///
/// Threads: latest() from any. Limits: one query of some 100 ms at a time, on a connection of the history's.
/// Lifetime: the executor outlives `io`'s running.
class guard_watch {
  public:
    struct finding {
        std::vector<std::string> faults;
        std::chrono::system_clock::time_point at;  ///< When PostgreSQL answered.
    };

    guard_watch(pg::history_executor& history, boost::asio::io_context& io);
    ~guard_watch();

    /// Begins, on `io`.
    void start();
    /// Nothing before the first answer; while PostgreSQL is away, the one before.
    std::optional<finding> latest() const;

  private:
    struct impl;
    std::shared_ptr<impl> impl_;  ///< Shared with the coroutine.
};

}  // namespace fencegate::metrics
