#pragma once

#include <lockcore/cell.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace fencegate::pg {

/// The settings that all gateways of a cluster share; they must equal the row in fencing.cluster.
struct membership {
    lockcore::cell_id cell = 0;
    std::vector<std::string> node_names;
    std::size_t quorum = 0;
    std::chrono::milliseconds max_ttl{};
    std::chrono::milliseconds answer_bound{};
    bool takes_answer_bound = false;  ///< Use the cluster's answer_bound if a gateway has joined; else ours.
};

}  // namespace fencegate::pg
