#pragma once

#include <gateway/config/config.hpp>
#include <gateway/pg/database.hpp>

#include <boost/asio/io_context.hpp>

#include <memory>

namespace fencegate::audit {

/// Maintains the history's partitions once an hour: creates those of the next weeks and drops those older than
/// history.keep_days, one at a time. Each call waits at most 100 ms for a lock, so that writes are delayed no longer;
/// where the lock is not free it tries again five seconds later. Of several gateways one does the work at a time.
///
/// Lifetime: the database outlives the run of `io`.
class history_keeper {
  public:
    history_keeper(history_config cfg, pg::database& database, boost::asio::io_context& io);
    ~history_keeper();

    /// Begins, on `io`.
    void start();

  private:
    struct impl;
    std::shared_ptr<impl> impl_;  ///< Shared with the coroutine.
};

}  // namespace fencegate::audit
