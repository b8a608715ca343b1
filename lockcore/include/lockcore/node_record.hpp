#pragma once

#include <lockcore/types.hpp>

#include <string>

namespace lockcore {

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
