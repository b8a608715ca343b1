#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fencegate {

/// A row of the history, as far as `fencegate verify` needs it.
struct history_evidence {
    std::int64_t id = 0;
    std::int64_t at_us = 0;  ///< Microseconds since 1970.
    std::string event;
    std::string resource;
    std::optional<std::int64_t> token;       ///< fencing_token
    std::optional<std::int64_t> last_token;  ///< last_fencing_token: the fence after the event, or that refused it.
    std::optional<std::int64_t> ttl_ms;      ///< From the detail; leases only.
    bool repair = false;                     ///< fence_raised by an operator, which may lower the fence.
    bool has_reason = false;                 ///< The detail has a reason.
    bool observed = false;                   ///< The table is in observe mode, which let the change pass.
    bool bare = false;                       ///< Written with a token of another issuer (detail.bare_token).
    bool direct = false;                     ///< Written by a caller of enter() (detail.direct).
    bool refused_otherwise = false;          ///< Refused for another reason than a fence above its token.
    bool recorded_later = false;             ///< A refusal recorded after the lock of the guard row was released.
    bool decided_by_guard = false;           ///< begin_write decided it under the guard's lock: the fence is committed.
};

}  // namespace fencegate
