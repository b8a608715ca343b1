#pragma once

#include <lockcore/config.hpp>

#include <string>
#include <vector>

namespace lockcore {

/// What probe_nodes found out about one node, for an operator.
struct node_report {
    std::string name;
    bool ok = false;
    /// One line: version, role, persistence and eviction policy; or the fault and what to change.
    std::string detail;
};

/// Reads the settings of every node, one node after the other, without changing anything. Blocks.
///
/// Timeout: node_dead_after for the connection and for each answer; with a host name three times that for the
///          connection.
std::vector<node_report> probe_nodes(const config& cfg);

}  // namespace lockcore
