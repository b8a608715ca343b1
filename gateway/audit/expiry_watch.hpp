#pragma once

#include <gateway/audit/event_sink.hpp>
#include <gateway/pg/history/history_executor.hpp>

#include <lockcore/events.hpp>
#include <lockcore/lock_manager.hpp>

#include <boost/asio/io_context.hpp>

#include <memory>

namespace fencegate::audit {

/// Stands before the event_sink and adds what lockcore does not see: lease_expired, for a lease that ran out with
/// nobody giving it back. The gateway that granted it looks two seconds after its time whether the history knows of an
/// end or a renewal by another gateway, and whether a majority of the nodes still holds it; only then is it over. `at`
/// is when it ran out.
///
/// Threads: on_event from any thread. Lifetime: as event_sink's; the lock_manager outlives `io`'s running.
/// Limits:  1,000,000 leases; those granted beyond leave no lease_expired, nor do those of a gateway that stopped or
///          crashed.
class expiry_watch final : public lockcore::event_observer {
  public:
    expiry_watch(event_sink& sink, pg::history_executor& history, boost::asio::io_context& io);
    ~expiry_watch() override;

    void on_event(lockcore::event e) override;

    /// Begins to look, on `io`.
    void start(lockcore::lock_manager& locks);
    /// Asks the lock_manager no more; blocks while it is being asked. Before the lock_manager stops, on another thread
    /// than `io`'s.
    void stop();

  private:
    struct impl;
    event_sink& sink_;
    std::shared_ptr<impl> impl_;  ///< Shared with the coroutine that looks.
};

}  // namespace fencegate::audit
