#pragma once

#include <lockcore/types.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace lockcore {

/// What a node can be asked. One script each in redis/scripts; `undo` is a release that follows an attempt of one's
/// own, `hold` a renewal that adds a hold. Commands of one turn travel in this order: what carries a hold's id goes
/// before the release of that hold, and releases go before ACQUIRE, so that who waits finds the lease free.
enum class command_kind : std::uint8_t {
    renew,
    hold,
    top_up,
    close,
    release,
    acquire,
    confirm,
    inspect,
    look,
    list,
    undo
};
inline constexpr std::size_t command_kinds = 11;

/// What came of it. The first eight are the scripts' own numbers.
enum class reply_status : std::uint8_t {
    ok = 0,
    held = 1,          ///< Another's lease; `remaining`.
    lost = 2,          ///< The lease is not (or no longer) the caller's, or its hold is not. LOOK: there is none.
    stale = 3,         ///< CONFIRM: the counter is past the token; `value` is the counter.
    overflow = 4,      ///< The epoch's tokens are used up.
    exhausted = 5,     ///< RENEW: as many renewals as allowed. HOLD: as many holds, or as long, as allowed.
    own = 6,           ///< ACQUIRE: a lease of this very holder; `text` is that lease.
    kept = 7,          ///< ACQUIRE that was to take a lease over, CLOSE: the lease has other holds and stays as it is.
    not_admitted = 8,  ///< UNINIT: nothing was done.
    unreachable = 9,   ///< Not sent: nothing was done.
    timeout = 10,      ///< Sent, no answer in time: it may have been done, and an answer may still come.
    broken = 11,       ///< Sent, the connection broke: it may have been done, and no answer will come.
    error = 12,        ///< The node refused (out of memory, read-only, …): nothing was done.
    pending = 13,      ///< No answer yet, and none was needed any more.
};
inline constexpr unsigned script_statuses = 8;
const char* to_string(reply_status status);

struct node_reply {
    reply_status status = reply_status::unreachable;
    /// ok: ACQUIRE, TOP-UP the counter, RENEW and INSPECT the renewals. stale: the counter. held: the holder's token.
    /// exhausted: the renewals; HOLD: the holds, 0 where it is for the time.
    std::uint64_t value = 0;
    /// held, own, INSPECT's and LOOK's ok: until the lease on this node runs out; negative = never.
    milliseconds remaining{0};
    bool took_over = false;  ///< ACQUIRE: the previous lease was there.
    /// INSPECT: the ttl last given.
    milliseconds ttl{0};
    /// RENEW, HOLD: how long the lease was held so far.
    milliseconds held{0};
    /// RELEASE: how many who wait elsewhere were told.
    std::uint32_t told = 0;
    /// own, LOOK: the lease as it stands on the node. LIST: cursor and names. RENEW, HOLD, INSPECT, RELEASE, CLOSE,
    /// kept: its holds (proto/hold_view).
    std::string text;
};

/// The answer that one item of a script's reply stands for, each as its script's head says. Never fails: what it does
/// not understand is reply_status::error.
node_reply parse_reply(command_kind kind, std::string_view text);

}  // namespace lockcore
