#pragma once

#include <gateway/devstack/ports.hpp>

#include <string>

namespace fencegate::devstack {

/// Whether something takes a connection there within half a second.
bool accepts(const endpoint& where);

/// The status of `GET path`; 0 where no answer comes within half a second. Blocking; for readiness only.
unsigned get_status(const endpoint& where, const std::string& path);

}  // namespace fencegate::devstack
