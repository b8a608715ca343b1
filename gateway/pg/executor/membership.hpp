#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace fencegate::pg {

/// What a cluster's row in PostgreSQL must agree with.
struct membership {
    std::vector<std::string> node_names;
    std::size_t quorum = 0;
    std::chrono::milliseconds max_ttl{};
};

}  // namespace fencegate::pg
