#pragma once

#include <gateway/audit/event_sink.hpp>
#include <gateway/domain/history_item.hpp>
#include <gateway/pg/database.hpp>

#include <lockcore/events.hpp>
#include <lockcore/lock_manager.hpp>
#include <lockcore/types.hpp>

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fencegate::audit {

/// The leases that this gateway granted or renewed and whose end it has not seen, ordered by the time at which they are
/// to be checked.
///
/// Threads: safe.
/// Limits:  leases_max leases; further ones are not added. Nothing is stored of a lease that was removed.
class expiry_schedule {
  public:
    using time_point = std::chrono::system_clock::time_point;
    static constexpr std::size_t leases_max = 1'000'000;

    struct watched_lease {
        lockcore::nonce attempt_id;  ///< Identifies it.
        std::vector<lockcore::resource_name> resources;
        std::size_t shared = 0;  ///< How many of the resources are shared: the last ones.
        lockcore::fencing_token token{};
        actor initiator;
        time_point since;          ///< When this gateway last granted or renewed it.
        time_point until;          ///< When it expires, by the grant and the renewals of this gateway.
        time_point granted_at;     ///< When the gateway that granted it began to ask the nodes for it.
        bool granted_here = true;  ///< False: this gateway has only renewed it.

        /// Returns whether it shares all of its resources, so that others may have its token.
        bool is_shared() const { return shared == resources.size(); }
    };

    /// Adds a lease that this gateway granted or renewed, or prolongs it if it is there already.
    void add_lease(watched_lease lease);
    /// Removes the lease.
    ///
    /// Out: whether it was there.
    bool remove_lease(const lockcore::nonce& attempt_id);

    /// Returns a lease whose check is due at `now`, if there is one: it has expired, unless another gateway has renewed
    /// it. It is not returned again before schedule_check().
    std::optional<watched_lease> take_due(time_point now);
    /// Makes the next check of the lease due at `at`, or when it expires if that is later.
    void schedule_check(const watched_lease& lease, time_point at);

    std::size_t leases() const;
    std::size_t scheduled_checks() const;

  private:
    struct entry {
        watched_lease lease;
        time_point check_at;  ///< When it is to be checked next.
        /// Its time in checks_; empty while it is taken. It may be before check_at: a renewal sets only that, because
        /// most leases are renewed several times before their check.
        std::optional<time_point> scheduled_at;
    };
    /// Puts the lease into checks_ at its check_at.
    void schedule(const std::string& key, entry& watched);

    mutable std::mutex mutex_;
    std::unordered_map<std::string, entry> leases_;
    std::set<std::pair<time_point, std::string>> checks_;  ///< With the key of the lease.
};

/// Passes events to the event_sink and adds the event that lockcore does not report: lease_expired, for a lease that
/// expired without a release. Two seconds after the expiry the gateway that granted the lease checks whether the
/// history has an end of the lease or a renewal by another gateway, and whether a majority of the nodes still holds it.
/// If not, it adds lease_expired, whose `at` is the time of the expiry. A lease may have no lease_granted in the
/// history, because the gateway that asked the nodes for it did not get their answers in time; it is checked by the
/// gateway that renewed it last.
///
/// Threads:  on_event from any thread.
/// Lifetime: as event_sink; the lock_manager outlives the run of `io`.
/// Limits:   1,000,000 leases. Leases granted or renewed beyond that, and leases of a gateway that stopped or crashed,
///           get no lease_expired.
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
