#pragma once

#include <gateway/pg/database.hpp>

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <memory>
#include <optional>

namespace fencegate::audit {

/// Tells streams that follow the history up to which id they may read. It polls PostgreSQL once for all of them: every
/// 100 ms while there are followers, else every second. (A NOTIFY by each writing transaction would make all commits of
/// the database wait for one another.)
///
/// Threads:  safe.
/// Lifetime: the database outlives the run of `io`.
class history_feed {
  public:
    /// Maximum number of followers at one time.
    static constexpr std::size_t followers_max = 100;

    history_feed(pg::database& database, boost::asio::io_context& io);
    ~history_feed();

    /// Begins to poll, on `io`.
    void start();

    /// Counts a follower as long as the result lives; null where there are followers_max already.
    std::shared_ptr<void> add_follower();

    /// Returns the id up to which rows are settled (history_horizon.hpp). Empty until PostgreSQL was reached once.
    std::optional<std::int64_t> settled() const;

  private:
    struct impl;
    std::shared_ptr<impl> impl_;  ///< Shared with the polling coroutine and the followers.
};

}  // namespace fencegate::audit
