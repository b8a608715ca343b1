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
    sim_nonce previous = 0;  ///< ACQUIRE: the lease that is handed over.
    std::uint64_t token = 0;
};

struct call_answer {
    enum class outcome : std::uint8_t { done, locked, no_quorum, lost, exhausted } what{};
    sim_nonce nonce = 0;
    std::uint64_t token = 0;
    milliseconds left{0};  ///< validity_ms
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
