#pragma once

#include <lockcore/types.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockcore {

/// How a node is reached by TLS. The files are read for each new connection, so that renewed ones need no restart.
struct node_tls {
    std::string ca_file;           ///< PEM: who may have signed the certificate of a node. Empty: those of the system.
    std::string certificate_file;  ///< PEM: the certificate that is shown to a node, with its chain. Empty: none.
    std::string key_file;          ///< PEM: the key of that certificate.
    friend bool operator==(const node_tls&, const node_tls&) = default;
};

/// One independent Redis server: a process of its own, not a replica, not behind a proxy (docs/protocol.md R9).
struct node_address {
    std::string name;  ///< The unique name used in logs, in the history and in the register.
    std::string host;  ///< An IP address or a host name; a name is resolved before each connection.
    std::uint16_t port = 6379;
    std::string username;  ///< Empty: the default user of Redis. Needs a password.
    std::string password;  ///< Never logged. Empty, and no password_file: no AUTH is sent.
    /// A regular file with the password, which is read for each new connection. Empty: `password` is used.
    std::string password_file;
    /// Empty: no TLS. The certificate of the node has to name `host`.
    std::optional<node_tls> tls;
    friend bool operator==(const node_address&, const node_address&) = default;
};

/// The settings of the lease protocol. `validate` checks them.
struct config {
    /// The nodes: an odd number of them, 1 to nodes_max. No default.
    std::vector<node_address> nodes;

    /// The cell of this cluster: lease_ids and nodes of another cell are refused. Equal for the whole cluster, and
    /// never changed while its nodes have data. Default 0.
    cell_id cell = 0;
    /// The time after which a round continues without the answer of a node. Default 200 ms; 1 ms to 10 s; keep it below
    /// default_ttl.
    std::chrono::milliseconds node_timeout{200};
    /// The age of the oldest unanswered request at which the connection to a node is closed and opened again.
    /// Default 2 s; at least node_timeout.
    std::chrono::milliseconds node_dead_after{2'000};
    /// The ttl of a lease whose request names none. Default 10 s.
    std::chrono::milliseconds default_ttl{10'000};
    /// The longest ttl, and the longest quarantine of a node that may have forgotten leases. Equal for the whole
    /// cluster. Default 60 s; 100 ms to 1 h.
    std::chrono::milliseconds max_ttl{60'000};
    /// An answer that is read later than this after the first request of its attempt or round counts for nothing. A
    /// node that may have forgotten leases may therefore vote again after this time, when it has the leases of the
    /// others
    /// (docs/protocol.md, FAST READMISSION). Equal for the whole cluster. Default 500 ms; 1 ms to 10 s.
    /// If it is below node_timeout, answers that arrive between the two count for nothing.
    std::chrono::milliseconds answer_bound{500};
    /// The longest time for which a caller may wait for a resource. 0: no caller may wait. Default 30 s.
    std::chrono::milliseconds max_wait{30'000};
    /// How often the holder of a lease may renew it (lock_manager::renew). 0: never; at most renewals_counted. Default
    /// 1,000,000, so that in practice max_hold is the limit.
    std::uint32_t max_renewals = 1'000'000;
    /// The longest time for which a lease may be held, renewals included. Default 1 day; at least max_ttl.
    std::chrono::milliseconds max_hold{86'400'000};
    /// How many hand-overs in a row may give a lease to a waiter of this manager before other managers get a chance.
    /// 0: none; after every release all waiters contend. Default 16; at most 1,000.
    std::uint32_t handoff_max = 16;
    /// How many callers of one shard may wait at the same time; more get errc::too_many_waiters. Default 10,000.
    std::size_t waiters_max = 10'000;
    /// How many requests of one shard to one node may be unanswered; the node counts as unreachable for further ones.
    /// Default 65,536.
    std::size_t node_queue_max = 65'536;

    /// Returns every fault of the settings, each as "path: what is wrong"; empty if there is none.
    std::vector<std::string> validate() const;
};

/// The shortest ttl that a caller may ask for.
inline constexpr std::chrono::milliseconds ttl_min{100};
/// The most renewals that a lease counts (redis/scripts/renew.lua).
inline constexpr std::uint32_t renewals_counted = 999'999'999;

}  // namespace lockcore
