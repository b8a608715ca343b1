#pragma once

#include <lockcore/types.hpp>
#include <proto/command.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockcore {

/// What RELEASE releases. The values are the numbers of the script.
enum class release_scope : std::uint8_t {
    hold = 0,
    whole_lease = 1,
    undone_hold = 2,  ///< The hold, and its idempotency key is removed from the lease.
};

/// The arguments of the commands of one call, equal for all nodes.
struct lease_call {
    std::vector<resource_name> resources;
    nonce attempt_id;
    milliseconds ttl{0};
    std::string tail;                           ///< ACQUIRE, TOP-UP: the lease without nonce and token.
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
