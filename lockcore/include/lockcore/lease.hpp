#pragma once

#include <lockcore/boot_clock.hpp>
#include <lockcore/types.hpp>

#include <optional>
#include <string>
#include <vector>

namespace lockcore {

/// Holds that one lease may have at a time.
inline constexpr std::size_t holds_max = 64;
/// Longest principal, and longest owner.
inline constexpr std::size_t holder_bytes_max = 128;

/// Who asks. Two leases belong to the same holder only if both fields are equal.
struct holder {
    std::string
        principal;  ///< The authenticated caller, given by the host program. At most 128 bytes, no control characters.
    std::string owner;  ///< The caller's own name for itself; may be empty. At most 128 bytes, no control characters.
    friend bool operator==(const holder&, const holder&) = default;
};

/// What a lease_id says, and all that any gateway needs to serve a call on the lease.
struct lease_claims {
    nonce attempt;                         ///< Which grant it was.
    fencing_token token{};                 ///< The same on a majority of the nodes.
    std::vector<resource_name> resources;  ///< 1 to resources_max, sorted, no two alike.
    holder by;
    wall_time granted_at;  ///< For the history and max_hold.
    hold_id hold;          ///< Which of the lease's holds.
    /// Others may hold the same lease: its owner has a name, or it was taken with an idempotency key.
    bool may_be_shared = false;
    friend bool operator==(const lease_claims&, const lease_claims&) = default;
};

/// A lease as it stood when the call ended.
struct lease {
    std::string id;  ///< lease_id: the sealed claims; opaque to callers, cannot be forged.
    lease_claims claims;
    std::uint32_t hold_count = 1;
    milliseconds ttl{};       ///< As asked for.
    milliseconds validity{};  ///< What is left to the caller for certain: ttl − time spent − drift allowance. > 0.
    validity_time valid_until;  ///< The same as a time: behind this it may be another's.
    wall_time expires_at;       ///< Now + validity, for people.
    std::uint32_t renewals_left = 0;
    bool repeated = false;          ///< The idempotency key was known: this is the lease of the first request.
    bool entered = false;           ///< The lease was there already: this is another hold of it.
    std::size_t nodes_granted = 0;  ///< Nodes known to hold it when the call ended; the rest may follow.
    std::size_t nodes = 0;
};

/// What is asked for. A caller that names itself (`by.owner`) and asks again for the same resources while it holds them
/// gets the same token with one hold more.
struct acquire_request {
    std::vector<resource_name> resources;  ///< 1 to resources_max, no two alike: all of them or none, under one token.
    holder by;
    milliseconds ttl{};    ///< 0: config::default_ttl.
    milliseconds wait{0};  ///< How long the call may wait for the resource. 0: answer at once.
    std::string trace_id;  ///< Passed on to events; may be empty.
    /// The same key of the same principal gives the same lease while that lives; and whoever waited in vain and asks
    /// again within five seconds has its place in the queue again. Empty: none.
    std::string idempotency_key{};
    bool kept = false;    ///< For lock_manager::keep: the manager is to be told when somebody else ends the lease.
    bool closed = false;  ///< A new lease refuses further holds from the start, as after lock_manager::close_to_holds.
};

/// A lease as anybody may see it: without the right to it.
struct live_lease {
    lease_claims claims;  ///< `attempt` lets an operator take it away.
    std::uint32_t hold_count = 1;
    std::uint32_t renewals = 0;
    milliseconds remaining{};  ///< Until a majority no longer holds it, if it is not renewed.
    std::size_t nodes_granted = 0;
};

}  // namespace lockcore
