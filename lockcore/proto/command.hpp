#pragma once

#include <lockcore/types.hpp>

#include <cstdint>

namespace lockcore {

/// What a node can be asked about a lease. One script each in redis/scripts; `undo` is a release that follows an
/// attempt of one's own.
enum class command_kind : std::uint8_t { release, acquire, confirm, renew, inspect, top_up, undo };
inline constexpr std::size_t command_kinds = 7;

/// What came of it. The first six are the scripts' own numbers.
enum class reply_status : std::uint8_t {
    ok = 0,
    held = 1,          ///< Another's lease; `remaining`.
    lost = 2,          ///< The lease is not (or no longer) the caller's.
    stale = 3,         ///< CONFIRM: the counter is past the token; `value` is the counter.
    overflow = 4,      ///< The epoch's tokens are used up.
    exhausted = 5,     ///< RENEW: as many renewals as allowed.
    not_admitted = 6,  ///< UNINIT: nothing was done.
    unreachable = 7,   ///< Not sent: nothing was done.
    timeout = 8,       ///< Sent, no answer in time: it may have been done, and an answer may still come.
    broken = 9,        ///< Sent, the connection broke: it may have been done, and no answer will come.
    error = 10,        ///< The node refused (out of memory, read-only, …): nothing was done.
    pending = 11,      ///< No answer yet, and none was needed any more.
};
const char* to_string(reply_status status);

struct node_reply {
    reply_status status = reply_status::unreachable;
    std::uint64_t value =
        0;  ///< ok: ACQUIRE the counter, RENEW and INSPECT the renewals. stale: the counter. held: the holder's token.
    milliseconds remaining{0};  ///< held, and INSPECT's ok: until the lease on this node runs out; negative = never.
};

}  // namespace lockcore
