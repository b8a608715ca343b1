#pragma once

#include <gateway/devstack/options.hpp>

namespace fencegate::devstack {

/// Runs Redis nodes, a PostgreSQL and gateways of its own until SIGTERM or SIGINT, restarting what dies; then stops all
/// of it. DIR/stack.json says where everything is, from readiness on and after each change.
///
/// Out:     an exit code of gateway/app.hpp.
/// Threads: the process must have one only: children end with the thread that made them.
int run(const options& wanted);

}  // namespace fencegate::devstack
