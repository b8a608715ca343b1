#pragma once

#include <sim/parts/messages.hpp>

#include <vector>

namespace sim {

/// The kinds of calls that a client makes to a gateway.
enum class call_kind : std::uint8_t { acquire, renew, inspect, release };

struct call {
    std::uint32_t client = 0, generation = 0;
    call_kind kind{};
    resource_set resources = 0;
    milliseconds ttl{0};
    sim_nonce nonce = 0;     ///< Of the lease; ACQUIRE draws one.
    hold_number hold = 0;    ///< Of the lease; ACQUIRE draws one.
    sim_nonce previous = 0;  ///< ACQUIRE: the lease that is handed over.
    hold_number previous_hold = 0;
    std::uint64_t token = 0;
    identity holder = {};
    idempotency key = {};
    milliseconds wait{0};  ///< ACQUIRE: how long it may wait in a queue.
    bool reentry = false;  ///< ACQUIRE: of a lease that the client holds already.
};

struct call_answer {
    enum class outcome : std::uint8_t {
        done,
        locked,
        no_quorum,
        lost,
        too_late,  ///< The nodes agreed, but no validity was left.
        exhausted,
        cancelled,
    } result{};
    sim_nonce nonce = 0;
    std::uint64_t token = 0;
    milliseconds left{0};     ///< validity_ms
    std::uint32_t holds = 1;  ///< Holds of the lease on the nodes; after RELEASE: those that remain.
    hold_number hold = 0;     ///< ACQUIRE: the hold of the caller.
};

/// The clients as gateways see them. An answer takes no time, because a client counts the validity from its arrival.
class client_interface {
  public:
    virtual ~client_interface() = default;
    /// Returns false once the client has cancelled the call.
    virtual bool is_waiting_for(const call& c) const = 0;
    virtual void answer(const call& c, const call_answer& a) = 0;
};

}  // namespace sim
