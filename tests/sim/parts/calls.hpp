#pragma once

#include <sim/parts/messages.hpp>

#include <vector>

namespace sim {

/// What a client asks a gateway for.
enum class call_kind : std::uint8_t { acquire, renew, inspect, release };

struct call {
    std::uint32_t client = 0, generation = 0;
    call_kind kind{};
    resource_set resources = 0;
    milliseconds ttl{0};
    sim_nonce nonce = 0;     ///< Of the lease; ACQUIRE draws one.
    hold_number hold = 0;    ///< Of it; ACQUIRE draws one.
    sim_nonce previous = 0;  ///< ACQUIRE: the lease that is handed over.
    hold_number previous_hold = 0;
    std::uint64_t token = 0;
    identity by = {};
    idempotency key = {};
    milliseconds wait{0};  ///< ACQUIRE: how long it may stand in a queue.
    bool again = false;    ///< ACQUIRE: by one who holds it already.
};

struct call_answer {
    enum class outcome : std::uint8_t {
        done,
        locked,
        no_quorum,
        lost,
        too_late,  ///< The nodes said yes, when nothing was left of it.
        exhausted,
        cancelled,
    } what{};
    sim_nonce nonce = 0;
    std::uint64_t token = 0;
    milliseconds left{0};     ///< validity_ms
    std::uint32_t holds = 1;  ///< Of which the nodes told; after RELEASE: that remain.
    hold_number hold = 0;     ///< ACQUIRE: the caller's.
};

/// The clients, as gateways see them: co-located, so that a call's answer takes no time (validity counts from it).
class callers {
  public:
    virtual ~callers() = default;
    /// False once the client has gone away.
    virtual bool waits_for(const call& c) const = 0;
    virtual void answer(const call& c, const call_answer& a) = 0;
};

}  // namespace sim
