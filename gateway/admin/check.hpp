#pragma once

#include <gateway/config/config.hpp>

namespace fencegate::admin {

/// Looks at everything that a configuration names, without changing anything, and prints one line a thing: each Redis
/// node, PostgreSQL, the schema, the cluster's row.
///
/// Out: exit_ok where all of it fits, else exit_unavailable. Blocking.
int check(const config& cfg);

}  // namespace fencegate::admin
