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
    ping,
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
    std::uint32_t renewals_max = 0;
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
    std::chrono::seconds uptime{0};
    bool syncs_every_write = false;
    // READMIT
    enum class readmission : std::uint8_t { ok, already, gone } readmitted{};
};

}  // namespace sim
