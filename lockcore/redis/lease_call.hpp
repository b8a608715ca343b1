#pragma once

#include <lockcore/types.hpp>
#include <proto/command.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockcore::redis {

/// What every command of one call carries. Equal for all nodes.
struct lease_call {
    std::vector<resource_name> resources;
    nonce attempt;
    milliseconds ttl{0};
    std::string tail;                ///< ACQUIRE, TOP-UP: what stands behind nonce and token in the lease.
    wall_time granted_at{};          ///< As the tail says.
    std::string mark;                ///< ACQUIRE, RELEASE: the name under which this shard is told of ends.
    fencing_token hint{};            ///< ACQUIRE: lowest counter to use; 0 = none.
    std::optional<nonce> previous;   ///< ACQUIRE: the lease that is handed over.
    std::uint32_t renewals_max = 0;  ///< RENEW
    milliseconds hold_max{0};        ///< RENEW, HOLD
    std::uint32_t holds = 0;         ///< HOLD: how many there are then, at least. RELEASE: not 0 = never the last hold.
    bool all_holds = false;          ///< RELEASE, undo: not one hold, but the whole lease.
    std::string key;                 ///< HOLD: idempotency key; empty = none.
    std::string cursor, pattern;     ///< LIST
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
