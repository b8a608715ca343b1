#pragma once

#include <gateway/audit/event_sink.hpp>
#include <gateway/pg/database.hpp>

#include <lockcore/events.hpp>
#include <lockcore/lock_manager.hpp>

#include <boost/asio/io_context.hpp>

#include <memory>

namespace fencegate::audit {

/// Passes events to the event_sink and adds the event that lockcore does not report: lease_expired, for a lease that
/// expired without a release. Two seconds after the expiry the gateway that granted the lease checks whether the
/// history has an end of the lease or a renewal by another gateway, and whether a majority of the nodes still holds it.
/// If not, it adds lease_expired, whose `at` is the time of the expiry. Where the history has no lease_granted, because
/// the gateway that asked the nodes for the lease did not get their answers in time, the gateway that renewed the lease
/// last does so.
///
/// Threads:  on_event from any thread.
/// Lifetime: as event_sink; the lock_manager outlives the run of `io`.
/// Limits:   1,000,000 leases. Leases granted or renewed beyond that, and leases of a gateway that
///           stopped or crashed, get no lease_expired.
class expiry_watch final : public lockcore::event_observer {
  public:
    expiry_watch(event_sink& sink, pg::database& database, boost::asio::io_context& io);
    ~expiry_watch() override;

    void on_event(lockcore::event e) override;

    /// Begins to check leases, on `io`.
    void start(lockcore::lock_manager& locks);
    /// Stops calling the lock_manager; blocks while a call is under way. To be called before the lock_manager stops, on
    /// another thread than `io`'s.
    void stop();

  private:
    struct impl;
    event_sink& sink_;
    std::shared_ptr<impl> impl_;  ///< Shared with the coroutine that checks.
};

}  // namespace fencegate::audit
