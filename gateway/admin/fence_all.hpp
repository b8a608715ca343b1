#pragma once

#include <string>

namespace fencegate::admin {

/// Marks the storage generation as unknown, so that nothing is written under any token given so far: the running gateways
/// set a floor above all of them. Waits up to half a minute until one has done so, and prints the floor.
///
/// In:  `conninfo` of the role that owns the schema fencing. `reason` is for the history.
/// Out: an exit code of gateway/domain/exit_code.hpp; exit_unavailable if no gateway has set the floor yet: PostgreSQL
///      lets nothing in until one does. exit_failed if PostgreSQL refused the call, as after lock_timeout.
int fence_all(const std::string& conninfo, const std::string& reason);

}  // namespace fencegate::admin
