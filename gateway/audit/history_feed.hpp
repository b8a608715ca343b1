#pragma once

#include <gateway/pg/history/history_executor.hpp>

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <memory>
#include <optional>

namespace fencegate::audit {

/// Tells those who follow the history how far they may read: one look at PostgreSQL for all of them, every 100 ms while
/// anybody follows, every second else. (A NOTIFY of each writing transaction would make all commits of the database
/// wait for one another.)
///
/// Threads: safe. Lifetime: the executor outlives `io`'s running.
class history_feed {
  public:
    /// Followers at one time.
    static constexpr std::size_t followers_max = 100;

    history_feed(pg::history_executor& history, boost::asio::io_context& io);
    ~history_feed();

    /// Begins to look, on `io`.
    void start();

    /// A place for one who follows, as long as it is kept; null if all are taken.
    std::shared_ptr<void> join();

    /// Rows up to this id are settled (history_horizon.hpp). Empty while PostgreSQL was not reached since the start.
    std::optional<std::int64_t> settled() const;

  private:
    struct impl;
    std::shared_ptr<impl> impl_;  ///< Shared with the coroutine that looks, and with those who follow.
};

}  // namespace fencegate::audit
