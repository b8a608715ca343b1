#pragma once

#include <lockcore/types.hpp>
#include <proto/command.hpp>
#include <sim/world/context.hpp>

namespace sim {

/// A process on a node, and what it calls itself: INFO's run_id. 0: none.
using run_number = std::uint32_t;

enum class request_kind : std::uint8_t {
    lease,  ///< One of the scripts about a lease.
    identify,
    readmit,
    forget,  ///< Deletes the admission.
    ping,
};

/// Who asks: a principal, and an owner that it names; 0: it names none.
struct identity {
    std::uint16_t principal = 0, owner = 0;
    friend bool operator==(const identity&, const identity&) = default;
};

/// An idempotency key as the nodes keep it: whose it is, and what was asked for. 0: none.
struct idempotency {
    std::uint64_t who = 0;
    std::uint32_t what = 0;
    friend bool operator==(const idempotency&, const idempotency&) = default;
};

/// One hold of a lease; the first has the number of its nonce.
using hold_number = std::uint64_t;

/// Under which a gateway wants to be told that a lease ended. 0: none.
using wake_mark = std::uint32_t;

/// What a node counts of commands by which it may forget while it runs: those that lose data, and CONFIG SET.
struct node_marks {
    std::uint32_t lost = 0, set = 0;
    friend bool operator==(const node_marks&, const node_marks&) = default;
};

/// A lease ended, and `mark` is told.
struct wake {
    wake_mark mark = 0;
    sim_nonce ended = 0;
    std::uint32_t resource = 0;
};

/// What travels from a gateway to a node. Plain values: a request is what was built, whatever happens to who built it.
struct request {
    request_kind kind{};
    lockcore::command_kind command{};
    resource_set resources = 0;
    run_number run = 0;         ///< The run id for which it was built.
    std::uint32_t attempt = 0;  ///< At the gateway.
    sim_nonce nonce = 0, previous = 0;
    std::uint64_t token = 0, hint = 0;
    milliseconds ttl{0};
    // ACQUIRE, TOP-UP: what the lease says of itself.
    identity by;
    idempotency key;  ///< HOLD too.
    std::uint32_t renewals = 0;
    milliseconds held{0};
    bool closed = false;      ///< Refuses further holds.
    wake_mark left_mark = 0;  ///< In the lease from the start.
    wake_mark mark = 0;       ///< ACQUIRE: to be told; RELEASE: not to be told.
    hold_number hold = 0, previous_hold = 0;
    bool whole_lease = false, undone = false;  ///< RELEASE: not one hold; as if the hold had never been asked for.
    std::uint64_t close_mark = 0;              ///< CLOSE: of this attempt.
    bool lift = false;                         ///< CLOSE
    // RENEW, HOLD
    std::uint32_t renewals_max = 0;
    milliseconds hold_max{0};
    bool syncs = false;       ///< READMIT: when it was looked at.
    node_marks marks;         ///< READMIT: that were looked at.
    std::uint32_t claim = 0;  ///< IDENTIFY: to leave there; READMIT: that was seen before the draw.
    std::uint64_t base = 0;
};

struct reply {
    request_kind kind{};
    lockcore::node_reply lease;  ///< Or: what a script about a lease answered.
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
