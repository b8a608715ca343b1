#pragma once

#include <lockcore/types.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockcore {

/// The commands about leases; each has scripts in redis/scripts. `undo` runs the script of `release` for a failed
/// attempt, `hold` runs the script of `renew` to add a hold.
///
/// The commands of one loop turn are sent in this order: what extends or adds a hold before the release of that hold,
/// and releases before ACQUIRE, so that an ACQUIRE finds the lease released.
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

/// The outcome of a command on one node. The first eight values are the numbers in the scripts' replies.
enum class reply_status : std::uint8_t {
    ok = 0,
    held = 1,          ///< The lease is another holder's; `remaining` is its ttl.
    lost = 2,          ///< The lease or its hold is not the caller's (any more), or does not count: see has_stamp.
                       ///< LOOK: there is no lease.
    stale = 3,         ///< CONFIRM: the counter is above the token; `value` is the counter.
    overflow = 4,      ///< The tokens of the node's epoch are used up.
    exhausted = 5,     ///< RENEW: the limit of renewals or of the hold time is reached. HOLD: of holds or of that time.
    own = 6,           ///< ACQUIRE: the lease belongs to the same holder; `text` is that lease.
    other_holds = 7,   ///< CLOSE, ACQUIRE with a handoff: the lease has other holds and lives on.
    not_admitted = 8,  ///< UNINIT: the command had no effect.
    unreachable = 9,   ///< Not sent: the command had no effect.
    timeout = 10,      ///< Sent without an answer in time: it may have had its effect, and the answer may still arrive.
    broken = 11,       ///< Sent before the connection broke: it may have had its effect, and no answer will arrive.
    error = 12,        ///< The node refused (out of memory, read-only, …): the command had no effect.
    pending = 13,      ///< No answer yet.
};
inline constexpr unsigned script_statuses = 8;
const char* to_string(reply_status status);

/// The answer of one node to one command.
struct node_reply {
    reply_status status = reply_status::unreachable;
    /// ok of ACQUIRE: the counter; of RENEW and INSPECT: the renewals; of TOP-UP: the number for UPGRADE. stale: the
    /// counter. held: the stamp or the token of the other lease, whichever is higher; 0: the value is no lease.
    /// exhausted of RENEW: the renewals; of HOLD: the holds, 0 if the limit is the time. lost: see has_stamp.
    std::uint64_t value = 0;
    /// lost of RENEW, HOLD and INSPECT: the node has the caller's lease, but it does not count for the token. `value`
    /// is the higher of its stamp and the node's base; with that number UPGRADE makes it count.
    bool has_stamp = false;
    bool counts = false;  ///< TOP-UP: the lease counts for the token on this node.
    /// held, own, ok of INSPECT and LOOK: the ttl left on this node; negative: the key has no ttl.
    milliseconds remaining{0};
    bool took_over = false;  ///< ACQUIRE: the node had the previous lease and replaced it.
    /// INSPECT: the ttl that the lease was last given.
    milliseconds ttl{0};
    /// RENEW, HOLD: for how long the lease has been held.
    milliseconds held{0};
    /// RELEASE: how many other managers with waiters were notified.
    std::uint32_t notified_waiters = 0;
    /// own, LOOK: the lease as the node stores it. LIST: cursor and names. RENEW, HOLD, INSPECT, RELEASE, CLOSE,
    /// other_holds: the holds of the lease (proto/hold_view).
    std::string text;
};

/// Parses one item of a script's reply in the form that the script's head defines.
///
/// Errors: reply_status::error for any other text.
node_reply parse_reply(command_kind kind, std::string_view text);

/// What RELEASE releases. The values are the numbers of the script.
enum class release_scope : std::uint8_t {
    hold = 0,
    whole_lease = 1,
    undone_hold = 2,  ///< The hold, and its idempotency key is removed from the lease.
};

/// The arguments of the commands of one call, equal for all nodes.
struct lease_call {
    std::vector<resource_name> resources;
    std::size_t shared = 0;  ///< How many of the resources are shared: the last ones.
    nonce attempt_id;
    milliseconds ttl{0};
    std::string tail;                           ///< ACQUIRE, TOP-UP: the lease without nonce and token. LOOK: of the
                                                ///< caller whose shared lease is looked for; `*`: of any.
    wall_time granted_at{};                     ///< The same time as in the tail.
    std::string wake_mark;                      ///< ACQUIRE, RELEASE, INSPECT: names the channel of this shard.
    bool watches = false;                       ///< INSPECT: leaves the wake mark in the lease.
    fencing_token hint{};                       ///< ACQUIRE: the lowest counter to use; 0: none.
    std::optional<nonce> previous;              ///< ACQUIRE: the lease that is handed over.
    hold_id previous_hold;                      ///< ACQUIRE: the hold of that lease that is released.
    hold_id hold;                               ///< RENEW, HOLD, INSPECT, TOP-UP, RELEASE, CLOSE: the caller's hold.
    std::uint32_t renewals_max = 0;             ///< RENEW: config::max_renewals.
    milliseconds hold_max{0};                   ///< RENEW, HOLD: config::max_hold.
    release_scope scope = release_scope::hold;  ///< RELEASE: what is released.
    std::string close_mark;                     ///< CLOSE: the second half of the mark; the first is the hold's id.
    bool lift = false;                          ///< CLOSE: removes that mark.
    std::string key;                            ///< HOLD: the digest of the idempotency key; empty: none.
    std::string seen;                           ///< TOP-UP: max(stamp, base), as the node answered before; empty: none.
    std::string cursor, pattern;                ///< LIST: the arguments of SCAN.
};

/// Receives the answers to a call: one for each command sent, and a second one if an answer arrives after `timeout`.
class reply_target {
  public:
    virtual ~reply_target() = default;
    virtual const lease_call& call() const = 0;
    /// Takes the answer of a node to the command that was sent with `token`. Must not throw.
    ///
    /// Threads: that of the core.
    virtual void on_reply(node_index node, command_kind kind, fencing_token token, const node_reply& reply) = 0;
};

/// One command of a script call: the call, and the token for CONFIRM, RENEW, HOLD, TOP-UP and INSPECT.
struct batch_item {
    std::shared_ptr<reply_target> target;
    fencing_token token{};
};

}  // namespace lockcore
