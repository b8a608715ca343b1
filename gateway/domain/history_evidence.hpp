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
    std::optional<std::int64_t> last_token;  ///< last_fencing_token: the fence after the event, or that refused.
    std::optional<std::int64_t> ttl_ms;      ///< From the detail; leases only.
    bool repair = false;                     ///< An operator's fence_raised, which may lower.
    bool has_reason = false;                 ///< The detail tells one.
    bool observed = false;                   ///< Let through by a table in observe mode.
    bool bare = false;                       ///< Written with a token of another issuer (detail.bare_token).
    bool direct = false;                     ///< Written by a caller of enter() (detail.direct).
    bool other_refusal = false;              ///< Refused for another reason than a fence above its token.
    bool of_guard = false;  ///< Refused by begin_write, under the guard's lock: that fence is committed.
};

}  // namespace fencegate
