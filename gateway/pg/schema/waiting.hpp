#pragma once

#include <gateway/pg/connection/session.hpp>

#include <lockcore/lease.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::pg {

/// The callers that wait at other gateways.
struct waiting_elsewhere {
    std::vector<std::pair<std::string, std::size_t>> gateways;  ///< How many wait where.
    std::vector<lockcore::waiting_count> resources;
};

/// Stores how many callers wait at this gateway (fencing.waiting), whose `instance` is a UUID. Throws as session::exec
/// does.
void note_waiting(session& session, const std::string& instance, const std::string& gateway,
                  const lockcore::waiting_overview& callers);

/// Returns what other gateways than this instance have stored in the last 10 s, for resources with this prefix. Throws
/// as session::exec does, on a standby too.
waiting_elsewhere read_waiting(session& session, const std::string& instance, const std::string& prefix);

}  // namespace fencegate::pg
