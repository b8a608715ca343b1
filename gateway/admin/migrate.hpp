#pragma once

#include <string>

namespace fencegate::admin {

/// Installs or updates the schema fencing in one transaction and prints its new version. Blocks until the end.
///
/// In:  `conninfo` of a role that may create schemas and roles. `with_example` adds the shop example. A `proof_key`
///      that is not empty becomes the key with which the database checks the lease_id of callers of fencing.enter.
/// Out: an exit code of gateway/domain/exit_code.hpp.
int migrate(const std::string& conninfo, bool with_example, const std::string& proof_key);

}  // namespace fencegate::admin
