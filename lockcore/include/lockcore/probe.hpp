#pragma once

#include <lockcore/config.hpp>

#include <string>
#include <vector>

namespace lockcore {

/// What a look at one node found, for an operator.
struct node_report {
    std::string name;
    bool ok = false;
    std::string
        detail;  ///< One line: version, role, persistence, eviction policy; or what is wrong and what to change.
};

/// Looks at every node once, one after the other, without changing anything there. Blocking; at most 2 ×
/// node_dead_after a node.
std::vector<node_report> probe_nodes(const config& cfg);

}  // namespace lockcore
