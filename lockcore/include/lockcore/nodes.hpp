#pragma once

#include <lockcore/types.hpp>

#include <string>

namespace lockcore {

enum class node_state {
    unreachable,    ///< No connection, or no answer in time.
    identifying,    ///< Connected; its run id, role and persistence are being read. It does not vote.
    quarantined,    ///< It may have forgotten leases. It votes when it has the others', or all of them are over.
    misconfigured,  ///< It cannot vote with its present settings; `detail` says what to change.
    voting,         ///< It is admitted under its run id and is asked for leases.
};
const char* to_string(node_state state);

/// One node as one shard sees it.
struct node_status {
    std::string name;
    std::string address;  ///< host:port
    node_state state = node_state::unreachable;
    std::string detail;  ///< Why the node does not vote; empty while it votes.
    std::string run_id;  ///< Empty while unknown.
    epoch admitted_epoch{};
    epoch observed_epoch{};                ///< The highest plausible epoch on the node, whether it is admitted or not.
    epoch floor_epoch{};                   ///< The floor that was announced to the node; 0: none.
    std::chrono::microseconds latency{0};  ///< Of the latest answer; 0: none yet.
    milliseconds quarantine_left{0};
};

/// What the durable register knows of a node.
struct node_record {
    bool known = false;    ///< An epoch was drawn for this name before; if not, the node can have forgotten nothing.
    epoch latest_epoch{};  ///< The latest epoch drawn for the node.
    std::string life;      ///< The life that drew this epoch.
    bool synced = false;  ///< That life synced every write at each check, and the node has shown no loss of data since.
};

/// The request of epoch_register::draw.
struct epoch_request {
    std::string node_name;
    /// The life of the node: its process and the state of its data. Empty: no node; the epoch is always new.
    std::string life;
    bool synced = false;       ///< The node synced every write at the last check.
    epoch highest_observed{};  ///< The highest epoch that this shard has observed on any node.
};

/// The result of epoch_register::draw.
struct drawn_epoch {
    epoch value{};
    bool repeated = false;  ///< The same life had drawn this epoch before.
};

}  // namespace lockcore
