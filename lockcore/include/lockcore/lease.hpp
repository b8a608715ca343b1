#pragma once

#include <lockcore/types.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockcore {

/// The number of holds that one lease may have at a time.
inline constexpr std::size_t holds_max = 64;
/// The longest principal, and the longest owner, in bytes.
inline constexpr std::size_t holder_bytes_max = 128;

/// To whom a lease is granted. Two leases belong to the same holder only if both fields are equal.
struct holder {
    /// The authenticated caller, named by the host program. At most 128 bytes, no control characters.
    std::string principal;
    /// The caller's own name for one of its workers; may be empty. At most 128 bytes, no control characters.
    std::string owner;
    friend bool operator==(const holder&, const holder&) = default;
};

/// The content of a lease_id: all that any gateway needs to serve a call for the lease.
struct lease_claims {
    nonce attempt_id;       ///< Identifies the grant.
    fencing_token token{};  ///< Equal on a majority of the nodes.
    /// 1 to resources_max names of at most names_bytes_max, together with `shared`; sorted, without duplicates.
    std::vector<resource_name> resources;
    lockcore::holder holder;
    wall_time granted_at;  ///< Identifies the lease's copies too (lease_record::is_same_lease).
    hold_id hold;          ///< The hold that this lease_id identifies.
    /// The lease may have further holds: its owner has a name, or it was acquired with an idempotency key.
    bool may_be_shared = false;
    /// Resources that others may share; none is in `resources`. Sorted.
    std::vector<resource_name> shared{};
    friend bool operator==(const lease_claims&, const lease_claims&) = default;
};

/// A lease at the end of the call that returned it.
struct lease {
    std::string id;  ///< The lease_id: the signed claims; opaque to callers, cannot be forged.
    lease_claims claims;
    std::uint32_t hold_count = 1;
    milliseconds ttl{};         ///< The ttl that the caller asked for.
    milliseconds validity{};    ///< The time left: ttl − time elapsed − allowance for clock drift.
    validity_time valid_until;  ///< The end of the validity; afterwards another holder may have the resource.
    wall_time expires_at;       ///< Now + validity by the wall clock, for people.
    std::uint32_t renewals_left = 0;
    bool repeated = false;          ///< The idempotency key was known: this is the lease of the first request.
    bool reentrant = false;         ///< The holder had the lease already: this is another hold of it.
    std::size_t nodes_granted = 0;  ///< Nodes known to hold the lease when the call ended; more may follow.
    std::size_t nodes = 0;
};

/// A request for a lease. A holder with a named owner that requests the same resources again while it holds them gets
/// the same token with one more hold.
struct acquire_request {
    /// 1 to resources_max different names of at most names_bytes_max, together with `shared`: all or none, under one
    /// token.
    std::vector<resource_name> resources;
    lockcore::holder holder;
    milliseconds ttl{};    ///< 0: config::default_ttl.
    milliseconds wait{0};  ///< How long the call may wait for the resource. 0: it answers at once.
    std::string origin;    ///< Where the call comes from: a text for its events, which may be empty.
    /// The same key of the same principal gives the same lease while that lease lives, whatever the owner is. A caller
    /// whose wait ended without a lease keeps its place in the queue if it asks again with its key within five seconds.
    /// Empty: no key.
    std::string idempotency_key{};
    /// For lock_manager::keep: the nodes notify this manager when another one ends the lease.
    bool kept = false;
    /// Which leases answer the request.
    enum class answer {
        any,
        no_further_hold,  ///< A new lease, or the one of the idempotency key; not another hold of a named owner.
        repeated,         ///< Only the lease of the idempotency key; nothing is granted, and the call does not wait.
    };
    answer accepts = answer::any;
    /// Whether a refusal is an event. Not for a caller that asks for any one of several resources: it is refused once.
    bool record_refusal = true;
    /// A new lease refuses further holds from the start, as after lock_manager::close_to_new_holds.
    bool closed = false;
    /// Called when the call is about to wait in a queue; may be empty. The result lives as long as the call waits;
    /// null: it may not wait, and fails with errc::too_many_waiters. Called on the thread of the shard; must neither
    /// block nor throw.
    std::function<std::shared_ptr<void>()> admit_waiter{};
    /// Resources that any number of leases may share, while no lease has one of them in `resources`. A waiting request
    /// for it in `resources` is not overtaken by later ones for it in `shared`.
    std::vector<resource_name> shared{};
};

/// Returns whether a request or claims name no resource at all.
template <class Names>
bool has_no_resource(const Names& of) {
    return of.resources.empty() && of.shared.empty();
}
/// Returns the first name of a request or of claims.
template <class Names>
const resource_name& first_resource(const Names& of) {
    return of.resources.empty() ? of.shared.front() : of.resources.front();
}
/// Returns all names of a request or of claims, the shared ones last.
template <class Names>
std::vector<resource_name> all_resources(const Names& of) {
    std::vector<resource_name> out = of.resources;
    out.insert(out.end(), of.shared.begin(), of.shared.end());
    return out;
}

/// A lease as an observer sees it, who has no right to it.
struct live_lease {
    lease_claims claims;  ///< With these an operator can revoke the lease.
    std::uint32_t hold_count = 1;
    std::uint32_t renewals = 0;
    milliseconds remaining{};  ///< The time until a majority no longer holds the lease unless it is renewed.
    std::size_t nodes_granted = 0;
};

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
