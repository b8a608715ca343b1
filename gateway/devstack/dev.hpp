#pragma once

#include <gateway/devstack/options.hpp>

namespace fencegate::devstack {

/// Runs Redis nodes, a PostgreSQL server and gateways of its own until SIGTERM or SIGINT, and restarts processes that
/// exit; then stops all of them. Once the stack is ready, and after each restart, writes the addresses and process ids
/// to DIR/stack.json.
///
/// Out:     an exit code of gateway/domain/exit_code.hpp.
/// Threads: the process must have only one: children are killed when the thread that started them ends.
int run(const options& chosen);

}  // namespace fencegate::devstack
