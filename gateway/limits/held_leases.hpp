#pragma once

#include <gateway/limits/limiter.hpp>

#include <lockcore/events.hpp>

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fencegate::limits {

/// Counts the live leases of each principal that this gateway granted, from the events of the lock_manager. A lease is
/// live until it is released or revoked through this gateway, or until its ttl is over. While no principal's leases are
/// limited, none are counted.
///
/// Threads:  safe.
/// Lifetime: the limiter and `next` outlive it; it outlives the lock_manager.
/// Limits:   leases_max leases; leases granted beyond that are not counted.
class held_leases final : public lockcore::event_observer {
  public:
    static constexpr std::size_t leases_max = 1'000'000;

    /// `next` gets each event too.
    held_leases(limiter& limits, lockcore::event_observer& next) : limiter_(limits), next_(next) {}

    void on_event(lockcore::event e) override;
    void on_node_change(const lockcore::node_change& change) override { next_.on_node_change(change); }

    /// Takes a place for an acquisition, which the caller keeps until that has ended. An acquisition of exactly the
    /// resources of a lease that the principal holds needs none, because it can only replace or share that lease.
    ///
    /// Errors: errc::too_many_requests: the principal holds, or is acquiring, as many leases as it may.
    result<place> admit(const std::shared_ptr<caller>& principal, const std::vector<lockcore::resource_name>& resources,
                        lockcore::wall_time now);
    /// Returns how many leases the principal holds.
    std::size_t count(const std::string& principal, lockcore::wall_time now);

  private:
    struct entry {
        std::string principal;
        lockcore::fencing_token token{};
        lockcore::wall_time ends_at;
    };
    using entries = std::unordered_map<std::string, entry>;

    void track(const lockcore::event& e);
    bool holds(const std::string& principal, const std::vector<lockcore::resource_name>& resources) const;
    void add(const lockcore::event& e);
    void remove(entries::iterator lease);
    void remove_expired(lockcore::wall_time now);

    limiter& limiter_;
    lockcore::event_observer& next_;
    std::mutex mutex_;
    entries leases_;  ///< By the names of their resources.
    std::set<std::pair<lockcore::wall_time, std::string>> by_end_;
    std::map<std::string, std::size_t, std::less<>> counts_;  ///< By principal; only principals with leases.
};

}  // namespace fencegate::limits
