#pragma once

#include <gateway/config/config.hpp>

namespace fencegate::admin {

/// Checks the servers of a configuration without changing anything, and prints one line for each Redis node,
/// PostgreSQL, the schema, the cluster's row, the guard and the recorder. Blocks until the end.
///
/// Out: exit_ok if everything fits, else exit_unavailable.
int check(const config& cfg);

}  // namespace fencegate::admin
