#pragma once

#include <lockcore/types.hpp>
#include <proto/command.hpp>
#include <sim/world/context.hpp>

namespace sim {

/// Identifies a process of a node, as `run_id` in INFO does. 0: none.
using run_number = std::uint32_t;

enum class request_kind : std::uint8_t {
    lease,  ///< One of the scripts for leases.
    identify,
    readmit,
    delete_admission,  ///< Deletes the admission.
    ping,
};

/// The holder of a lease: a principal and an owner; owner 0: none is named.
struct identity {
    std::uint16_t principal = 0, owner = 0;
    friend bool operator==(const identity&, const identity&) = default;
};

/// An idempotency key as the nodes store it: a hash of principal and key, and a hash of the request. 0: none.
struct idempotency {
    std::uint64_t key_hash = 0;
    std::uint32_t request_hash = 0;
    friend bool operator==(const idempotency&, const idempotency&) = default;
};

/// The id of a hold; the first hold of a lease has the number of its nonce.
using hold_number = std::uint64_t;

/// The mark under which a gateway is notified that a lease ended. 0: none.
using wake_mark = std::uint32_t;

/// The node's counts of commands after which it may lose data: those that lose data at once, and CONFIG SET.
struct node_marks {
    std::uint32_t lost = 0, set = 0;
    friend bool operator==(const node_marks&, const node_marks&) = default;
};

/// A message published to `mark`: the lease `ended` on `resource` ended.
struct release_message {
    wake_mark mark = 0;
    sim_nonce ended = 0;
    std::uint32_t resource = 0;
};

/// A request of a gateway to a node. It holds values only, because it may outlive the attempt that built it.
struct request {
    request_kind kind{};
    lockcore::command_kind command{};
    resource_set resources = 0;
    run_number run = 0;         ///< The run id for which the request was built.
    std::uint32_t attempt = 0;  ///< Its index at the gateway.
    sim_nonce nonce = 0, previous = 0;
    std::uint64_t token = 0, hint = 0;
    milliseconds ttl{0};
    // ACQUIRE, TOP-UP: the contents of the lease.
    identity holder;
    idempotency key;  ///< Also for HOLD.
    std::uint32_t renewals = 0;
    milliseconds held{0};
    hold_number closed_by = 0;      ///< 0: the lease does not refuse further holds.
    std::uint64_t closed_mark = 0;  ///< The mark of the call that closed it.
    wake_mark initial_mark = 0;     ///< Written into the new lease.
    wake_mark mark = 0;             ///< ACQUIRE: is notified of the end; RELEASE: is not.
    hold_number hold = 0, previous_hold = 0;
    bool whole_lease = false, undone = false;  ///< RELEASE: all holds; also the hold's idempotency key.
    std::uint64_t close_mark = 0;              ///< CLOSE: the mark of this attempt.
    bool lift = false;                         ///< CLOSE: removes the mark.
    // RENEW, HOLD
    std::uint32_t renewals_max = 0;
    milliseconds hold_max{0};
    bool syncs = false;       ///< READMIT: as seen by IDENTIFY.
    node_marks marks;         ///< READMIT: as seen by IDENTIFY.
    std::uint32_t claim = 0;  ///< IDENTIFY: to write if there is none; READMIT: as seen before the draw.
    std::uint64_t base = 0;
};

struct reply {
    request_kind kind{};
    lockcore::node_reply lease;  ///< The reply of a script for leases.
    // IDENTIFY
    run_number live_run = 0, admitted_run = 0;
    std::uint32_t claim = 0;
    std::uint64_t base = 0;
    bool syncs_every_write = false, kept_unsynced = false;
    node_marks marks, admitted_marks;
    // READMIT
    enum class readmission : std::uint8_t { ok, already, gone } readmitted{};
};

}  // namespace sim
