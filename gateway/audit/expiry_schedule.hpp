#pragma once

#include <gateway/domain/actor.hpp>

#include <lockcore/types.hpp>

#include <chrono>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fencegate::audit {

/// The leases that this gateway granted or renewed and did not release, ordered by the time at which they expire.
///
/// Threads: safe.
/// Limits:  leases_max leases; further ones are not added. Nothing is kept of a lease that was removed.
class expiry_schedule {
  public:
    using time_point = std::chrono::system_clock::time_point;
    static constexpr std::size_t leases_max = 1'000'000;

    struct watched_lease {
        std::vector<lockcore::resource_name> resources;
        lockcore::fencing_token token{};
        actor initiator;
        time_point since;       ///< The newest grant or renewal by this gateway.
        time_point until;       ///< The latest end that a grant or renewal by this gateway gave it.
        time_point granted_at;  ///< When the gateway that granted it began to ask the nodes.
        bool granted_here = true;
    };

    /// Adds a lease that this gateway granted or renewed, or prolongs it if it is there already.
    void add_lease(watched_lease lease);
    /// Removes the lease.
    ///
    /// Out: whether it was there.
    bool remove_lease(const std::vector<lockcore::resource_name>& resources, lockcore::fencing_token token);

    /// Returns a lease that has expired at `now`, if there is one. take_due() returns it again only after
    /// schedule_check().
    std::optional<watched_lease> take_due(time_point now);
    /// Makes the lease due again at `at` or when it expires, whichever is later.
    void schedule_check(const watched_lease& lease, time_point at);

    /// Returns the number of leases and the number of scheduled checks.
    std::pair<std::size_t, std::size_t> sizes() const;

  private:
    struct entry {
        watched_lease lease;
        time_point check_at;            ///< When it is to be checked next.
        std::optional<time_point> due;  ///< Its time in due_; empty where it is not there.
    };
    void schedule(const std::string& key, entry& watched);

    mutable std::mutex mutex_;
    std::unordered_map<std::string, entry> leases_;
    std::set<std::pair<time_point, std::string>> due_;
};

}  // namespace fencegate::audit
