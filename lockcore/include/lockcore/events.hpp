#pragma once

#include <lockcore/lease.hpp>
#include <lockcore/node_status.hpp>

#include <string>

namespace lockcore {

enum class event_kind {
    lease_granted,
    lease_renewed,
    lease_released,
    lease_revoked,  ///< `by` is who took it away, `detail` the reason.
    lease_refused,  ///< An acquire ended with errc::resource_locked or errc::no_quorum.
    lease_thin,     ///< All nodes have answered, or their time is over: a grant stands on a bare majority of them.
    node_quarantined,
    node_readmitted,
    epoch_raised,
};
const char* to_string(event_kind kind);

/// Something the history should know.
struct event {
    event_kind kind{};
    wall_time at;
    std::vector<resource_name> resources;  ///< Empty for events of a node.
    fencing_token token{};                 ///< 0 where there is none.
    holder by;
    std::string trace_id;
    std::string detail;  ///< A short phrase: the reason of a refusal, the name of a node.
    milliseconds ttl{0};
    wall_time granted_at{};               ///< Of the lease; of lease_released, lease_revoked, lease_renewed.
    std::chrono::microseconds waited{0};  ///< lease_granted, lease_refused: from asking to the answer.
    /// Of `nodes`, those that stand for the lease. lease_granted: when it was answered, others may follow. lease_thin.
    std::size_t nodes_granted = 0;
    std::size_t nodes = 0;
};

/// A node is in another state than before, seen over all shards of a manager.
struct node_change {
    std::string name;
    node_state from = node_state::unreachable;
    node_state to = node_state::unreachable;
    std::string detail;  ///< Why it does not vote; empty where it does.
};

/// Told of events on the shard on which they happen, in order per resource. Must not block and must not throw.
class event_observer {
  public:
    virtual ~event_observer() = default;
    virtual void on_event(event e) = 0;
    /// Called once for each change, whichever shard saw it first; one after the other.
    virtual void on_node_change(const node_change&) {}
};

}  // namespace lockcore
