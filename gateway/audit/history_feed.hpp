#pragma once

#include <gateway/domain/history_item.hpp>
#include <gateway/pg/database.hpp>

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <memory>
#include <optional>

namespace fencegate::audit {

/// Finds the id up to which the history is settled: no further row with such an id will become visible. Ids are
/// assigned before rows are committed, so that a row may become visible after one with a higher id.
///
/// It remembers the last id of one moment, and the transactions that may have taken ids up to it. When all of those
/// have ended, every row up to that id is visible or was rolled back. While a transaction stays open the settled id
/// does not grow, so that readers miss no row.
class history_horizon {
  public:
    /// Takes the next state of the history's end; states are passed in order. Returns settled().
    std::optional<std::int64_t> advance(history_tail seen);

    /// Returns the settled id; empty while it is unknown.
    std::optional<std::int64_t> settled() const { return settled_; }
    /// Whether ids were assigned that are not settled.
    bool has_unsettled_ids() const { return pending_.has_value(); }

  private:
    std::optional<std::int64_t> settled_;
    std::optional<history_tail> pending_;  ///< An earlier state whose writers have not all ended.
};

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

    /// Returns the id up to which rows are settled (history_horizon). Empty until PostgreSQL was reached once.
    std::optional<std::int64_t> settled() const;

  private:
    struct impl;
    std::shared_ptr<impl> impl_;  ///< Shared with the polling coroutine and the followers.
};

}  // namespace fencegate::audit
