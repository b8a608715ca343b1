#pragma once

#include <gateway/limits/limiter.hpp>

#include <lockcore/events.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::limits {

/// Counts the leases of each principal: those that this gateway granted and that are live, from the events of the
/// lock_manager, and those that are being acquired. A lease is live until it is released or revoked through this
/// gateway, or until its ttl is over. Acquisitions of exactly the same resources count once, together with a lease on
/// them: the principal can have only one of these leases at a time. Leases are counted without a limit too, because a
/// reload may set one.
///
/// Threads:  safe.
/// Lifetime: the limiter and `next` outlive it; it outlives the lock_manager.
/// Limits:   leases_max leases; leases granted beyond that are not counted.
class held_leases final : public lockcore::event_observer {
    class lease_counts;
    struct principal_leases;
    struct acquiring_calls;
    using principal_entry = std::pair<const std::string, principal_leases>;
    using acquiring_entry = std::pair<const std::string, acquiring_calls>;

  public:
    static constexpr std::size_t leases_max = 1'000'000;

    /// An acquisition that is counted until the destructor.
    ///
    /// Threads: not safe; another thread may destroy it.
    class acquisition {
      public:
        acquisition() = default;
        acquisition(acquisition&& other) noexcept { *this = std::move(other); }
        acquisition& operator=(acquisition&& other) noexcept {
            counts_.swap(other.counts_);
            std::swap(entry_, other.entry_);
            return *this;
        }
        ~acquisition();

      private:
        friend class held_leases;
        std::shared_ptr<lease_counts> counts_;
        acquiring_entry* entry_ = nullptr;
    };

    /// `next` gets each event too.
    held_leases(limiter& limits, lockcore::event_observer& next);
    ~held_leases() override;

    void on_event(lockcore::event e) override;
    void on_node_change(const lockcore::node_change& change) override { next_.on_node_change(change); }

    /// Counts an acquisition, which the caller keeps until that has ended. It counts by itself if it is not known yet
    /// which resource it will get (`any_of`), or if it shares all of them and has no owner: each is another lease.
    ///
    /// Errors: errc::too_many_requests: the principal holds, or is acquiring, as many leases as it may.
    result<acquisition> admit(const std::shared_ptr<caller>& principal, const lockcore::acquire_request& wanted,
                              bool any_of, lockcore::wall_time now);
    /// Returns whether this gateway granted a live lease on the resource alone.
    bool is_held(const lockcore::resource_name& resource, lockcore::wall_time now);
    /// Returns how many leases the principal holds or is acquiring.
    std::size_t count(const std::string& principal, lockcore::wall_time now);

  private:
    limiter& limiter_;
    lockcore::event_observer& next_;
    std::atomic<std::uint64_t> counted_alone_{0};  ///< Acquisitions that were counted by themselves.
    const std::shared_ptr<lease_counts> counts_;   ///< Shared with acquisitions, which may outlive this.
};

}  // namespace fencegate::limits
