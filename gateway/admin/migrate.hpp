#pragma once

#include <string>
#include <vector>

namespace fencegate::admin {

/// Installs or updates the schema fencing in one transaction and prints its new version. Blocks until the end.
///
/// In:  `conninfo` of a role that may create schemas and roles. `with_example` adds the shop example. `proof_keys`
///      become keys with which the database checks the lease_id of callers of fencing.enter; none: it stays as it is.
/// Out: an exit code of gateway/domain/exit_code.hpp.
int migrate(const std::string& conninfo, bool with_example, const std::vector<std::string>& proof_keys);

}  // namespace fencegate::admin
