#pragma once

#include <gateway/config/config.hpp>
#include <gateway/pg/history/history_executor.hpp>

#include <boost/asio/io_context.hpp>

#include <memory>

namespace fencegate::audit {

/// Looks after the history's partitions once an hour: makes those of the weeks to come and drops those that are older
/// than history.keep_days, one at a time, each with a wait for locks of 100 ms at most, so that writes are not held up
/// for longer; where a lock is not to be had, again five seconds later. Gateways that come at the same time leave it to
/// one.
///
/// Lifetime: the executor outlives `io`'s running.
class history_keeper {
  public:
    history_keeper(history_config cfg, pg::history_executor& history, boost::asio::io_context& io);
    ~history_keeper();

    /// Begins, on `io`.
    void start();

  private:
    struct impl;
    std::shared_ptr<impl> impl_;  ///< Shared with the coroutine.
};

}  // namespace fencegate::audit
