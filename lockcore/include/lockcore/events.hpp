#pragma once

#include <lockcore/lease.hpp>
#include <lockcore/nodes.hpp>

#include <string>

namespace lockcore {

enum class event_kind {
    lease_granted,
    lease_renewed,
    lease_released,
    lease_revoked,  ///< `actor` is the operator, `detail` the reason.
    lease_refused,  ///< An acquire ended with errc::resource_locked or errc::no_quorum.
    lease_thin,     ///< Every node has answered or timed out, and exactly a majority of them holds the lease.
    node_quarantined,
    node_readmitted,
    epoch_raised,
};
const char* to_string(event_kind kind);

/// Something that the history records.
struct event {
    event_kind kind{};
    wall_time at;
    std::vector<resource_name> resources;  ///< Empty for the events of a node.
    std::size_t shared = 0;                ///< How many of the resources are shared: the last ones.
    fencing_token token{};                 ///< 0: none.
    nonce attempt_id;                      ///< Of the lease; leases that share a resource may have one token.
    holder actor;                          ///< The holder of the lease; of lease_revoked, the operator.
    holder revoked;                        ///< Of lease_revoked: the holder of the lease.
    std::string origin;                    ///< As the call gave it; empty for an event without a call.
    std::string detail;                    ///< A short text, such as the reason of a refusal or the name of a node.
    milliseconds ttl{0};
    wall_time granted_at{};               ///< When the lease was granted; zero where there is none.
    std::chrono::microseconds waited{0};  ///< From the call to its answer; 0 unless it asked for a lease.
    /// lease_granted, lease_thin: how many of `nodes` hold the lease. After lease_granted more of them may follow.
    std::size_t nodes_granted = 0;
    std::size_t nodes = 0;
};

/// A change of a node's state, as lock_manager::nodes() shows it.
struct node_change {
    std::string name;
    node_state old_state = node_state::unreachable;
    node_state new_state = node_state::unreachable;
    std::string detail;  ///< Why the node does not vote; empty while it votes.
};

/// Receives the events of a lock_manager. The functions must neither block nor throw.
///
/// Threads: on_event runs on the thread of the shard, in order for each resource.
class event_observer {
  public:
    virtual ~event_observer() = default;
    virtual void on_event(event e) = 0;
    /// Receives each change once, in order.
    ///
    /// Threads: the thread of the shard that saw the change first; never two calls at a time.
    virtual void on_node_change(const node_change&) {}
};

}  // namespace lockcore
