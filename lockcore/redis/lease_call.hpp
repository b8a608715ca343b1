#pragma once

#include <lockcore/types.hpp>
#include <proto/command.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockcore::redis {

/// What RELEASE gives back. The script's own numbers.
enum class release_scope : std::uint8_t {
    hold = 0,
    whole_lease = 1,
    undone_hold = 2,  ///< As if it had never been asked for: its idempotency key is forgotten too.
};

/// What every command of one call carries. Equal for all nodes.
struct lease_call {
    std::vector<resource_name> resources;
    nonce attempt;
    milliseconds ttl{0};
    std::string tail;                           ///< ACQUIRE, TOP-UP: what stands behind nonce and token in the lease.
    wall_time granted_at{};                     ///< As the tail says.
    std::string mark;                           ///< ACQUIRE, RELEASE: the name under which this shard is told of ends.
    fencing_token hint{};                       ///< ACQUIRE: lowest counter to use; 0 = none.
    std::optional<nonce> previous;              ///< ACQUIRE: the lease that is handed over.
    hold_id previous_hold;                      ///< ACQUIRE: the hold of it that is given back.
    hold_id hold;                               ///< RENEW, HOLD, INSPECT, TOP-UP, RELEASE, CLOSE: the caller's.
    std::uint32_t renewals_max = 0;             ///< RENEW
    milliseconds hold_max{0};                   ///< RENEW, HOLD
    release_scope scope = release_scope::hold;  ///< RELEASE
    std::string close_mark;                     ///< CLOSE: of this attempt, behind the id of the hold.
    bool lift = false;                          ///< CLOSE: lifts that mark.
    std::string key;                            ///< HOLD: idempotency key; empty = none.
    std::string cursor, pattern;                ///< LIST
};

/// Whoever waits for the answers to a call. Told once for each command sent, and once more if an answer comes after
/// `timeout`.
class reply_target {
  public:
    virtual ~reply_target() = default;
    virtual const lease_call& call() const = 0;
    /// `token`: what the command carried. Runs on the shard; must not throw.
    virtual void on_reply(node_index node, command_kind kind, fencing_token token, const node_reply& reply) = 0;
};

}  // namespace lockcore::redis
