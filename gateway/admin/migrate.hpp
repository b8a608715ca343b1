#pragma once

#include <string>

namespace fencegate::admin {

/// Installs or updates the schema fencing, in one transaction, and prints the version that it has then.
///
/// In:  `conninfo` of a role that may create schemas and roles. `with_example` adds the shop example. `proof_key`,
/// unless
///      it is empty, becomes the key by which the database checks the lease_id of callers of fencing.enter.
/// Out: an exit code of gateway/app.hpp. Blocking.
int migrate(const std::string& conninfo, bool with_example, const std::string& proof_key);

}  // namespace fencegate::admin
