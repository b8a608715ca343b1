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

/// Which lease runs out next, of those that nobody has given back.
///
/// Threads: safe. Limits: watched_max leases; what is granted then is not watched. A lease that ends leaves nothing.
class expiry_schedule {
  public:
    using time_point = std::chrono::system_clock::time_point;
    static constexpr std::size_t watched_max = 1'000'000;

    struct watched {
        std::vector<lockcore::resource_name> resources;
        lockcore::fencing_token token{};
        actor by;
        time_point until;  ///< When it runs out, as far as is known here.
    };

    void granted(watched lease);
    void renewed(const std::vector<lockcore::resource_name>& resources, lockcore::fencing_token token,
                 time_point until);
    /// False: it is not watched (any more).
    bool ended(const std::vector<lockcore::resource_name>& resources, lockcore::fencing_token token);

    /// One whose time was over at `now`, if there is any. It does not come again before look_again().
    std::optional<watched> next(time_point now);
    /// At `at`, or when it runs out.
    void look_again(const watched& lease, time_point at);

    /// Leases, and when they are to be looked at.
    std::pair<std::size_t, std::size_t> sizes() const;

  private:
    struct entry {
        watched lease;
        std::optional<time_point> due;  ///< In due_.
    };
    void schedule(const std::string& key, entry& of);

    mutable std::mutex mutex_;
    std::unordered_map<std::string, entry> leases_;
    std::set<std::pair<time_point, std::string>> due_;
};

}  // namespace fencegate::audit
