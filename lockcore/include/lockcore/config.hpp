#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockcore {

/// One independent Redis server: its own process, no replica of another, no proxy before it (docs/protocol.md R9).
struct node_address {
    std::string name;  ///< How people, the history and fencing.cluster call it. Unique.
    std::string host;  ///< An address or a host name; names are looked up before each connection.
    std::uint16_t port = 6379;
    std::string username;  ///< Empty: the default user.
    std::string password;  ///< Empty: no AUTH. Never logged.
};

/// What the lease protocol may be told. Checked by `validate`.
struct config {
    /// Odd number, 1 to nodes_max. No default.
    std::vector<node_address> nodes;

    /// How long one node may take to answer before the attempt goes on without it. Default 200 ms; 1 ms to 10 s; below
    /// default_ttl.
    std::chrono::milliseconds node_timeout{200};
    /// A node whose oldest unanswered request is this old is cut off and connected anew. Default 2 s; at least
    /// node_timeout.
    std::chrono::milliseconds node_dead_after{2'000};
    /// Lease time when the caller names none. Default 10 s.
    std::chrono::milliseconds default_ttl{10'000};
    /// Longest lease time. Also how long a node that may have forgotten sits out. Stands in fencing.cluster. Default 60
    /// s; 100 ms to 1 h.
    std::chrono::milliseconds max_ttl{60'000};
    /// Longest time a caller may wait for a resource. 0: nobody waits. Default 30 s.
    std::chrono::milliseconds max_wait{30'000};
    /// How often a lease may be renewed by its holder (lock_manager::renew). 0: never. Default 1,000,000, so that the
    /// time is what bounds.
    std::uint32_t max_renewals = 1'000'000;
    /// How long a lease may be held in all, renewals included. Default 1 day; at least max_ttl.
    std::chrono::milliseconds max_hold{86'400'000};
    /// How many times running a release here may hand the lease to the next who waits here, before other gateways get
    /// their turn. 0: never; every release is open to all. Default 16; at most 1,000.
    std::uint32_t handoff_max = 16;
    /// Callers that may wait at one time, over all resources of a shard. Above: errc::too_many_waiters. Default 10,000.
    std::size_t waiters_max = 10'000;
    /// Requests that may be queued for one node on one shard; more count as unanswered by that node. Default 65,536.
    std::size_t node_queue_max = 65'536;

    /// Every fault at once, each as "path: what is wrong"; empty if there is none.
    std::vector<std::string> validate() const;
};

/// Shortest lease time a caller may ask for.
inline constexpr std::chrono::milliseconds ttl_min{100};

}  // namespace lockcore
