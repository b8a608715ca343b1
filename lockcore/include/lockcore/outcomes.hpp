#pragma once

#include <lockcore/lease.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace lockcore {

/// The result of lock_manager::release and lock_manager::revoke.
struct release_outcome {
    std::uint32_t holds_left = 0;    ///< > 0: further holds are left, and the lease lives on.
    std::size_t nodes_released = 0;  ///< Nodes that had the hold and released it.
};

/// The result of lock_manager::close_to_new_holds.
struct close_outcome {
    bool closed = false;  ///< False: other holds are left, and the lease is not closed.
    hold_id mark;         ///< The CLOSE mark; lock_manager::reopen removes it.
};

/// The floor that a change of the storage generation sets (docs/protocol.md, STORAGE GENERATION).
struct storage_floor {
    epoch value{};          ///< The guard refuses tokens below value × 2^32.
    std::string change_id;  ///< Identifies the change.
};

/// A new floor is this much above every epoch that is known to be drawn: more than were drawn in what a register lost.
/// The register adds it.
inline constexpr std::uint64_t floor_distance = 1'024;

/// The result of lock_manager::announce_floor.
struct floor_announcement {
    bool by_majority = false;  ///< A majority of the nodes has the floor and is admitted.
    bool by_all = false;       ///< Every node has it. If only that, it has to be so again at a second announcement.
    epoch too_close{};         ///< The highest epoch on a node that the floor is too close to; 0: there is none.
    bool changed = false;      ///< A node has kept another floor, which this manager had not seen before.
};

/// A lease that its manager renews (lock_manager::keep).
struct kept_lease {
    lease current;
    validity_time hold_until = validity_time::max();  ///< keep() renews the lease until then at the longest.

    explicit kept_lease(lease granted) : current(std::move(granted)) {}

    /// Sets hold_until to `longest` after the current validity began.
    void limit_hold(milliseconds longest) { hold_until = current.valid_until - current.validity + longest; }
    kept_lease() = default;
};

/// The result of lock_manager::keep.
struct keep_step {
    enum class outcome {
        renewed,    ///< The lease was renewed.
        lost,       ///< The lease has ended; `reason` says why.
        exhausted,  ///< The lease is live but is not renewed any more: hold_until or max_hold is reached.
    };
    outcome result = outcome::lost;
    kept_lease kept;
    std::string reason;
};

/// The result of lock_manager::watch.
struct watch_step {
    enum class outcome {
        live,
        lost,      ///< It expired or was revoked, or it is not known that its holder released it.
        released,  ///< Its holder released it.
    };
    outcome result = outcome::lost;
    lease current;  ///< Only of a live lease.
};

/// How many callers of one manager wait for a resource.
struct waiting_count {
    std::string resource;
    std::size_t waiters = 0;
};

/// The callers that wait at one manager.
struct waiting_overview {
    std::size_t waiters = 0;  ///< Each caller is counted once.
    /// The resource with the most waiters first. A caller that waits for several resources counts for each of them.
    std::vector<waiting_count> resources;
};

}  // namespace lockcore
