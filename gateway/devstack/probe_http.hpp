#pragma once

#include <gateway/devstack/ports.hpp>

#include <string>

namespace fencegate::devstack {

/// Returns whether a server accepts a connection within half a second.
bool accepts_connections(const endpoint& target);

/// Returns the status of `GET path`; 0 if no response comes within half a second. Blocks; only for readiness checks.
unsigned get_status(const endpoint& target, const std::string& path);

}  // namespace fencegate::devstack
