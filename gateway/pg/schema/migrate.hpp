#pragma once

#include <gateway/domain/failure.hpp>

#include <string>
#include <utility>
#include <vector>

namespace fencegate::pg {

/// The result of a migration.
struct migration {
    int version = 0;             ///< Of the schema.
    std::string recorder_fault;  ///< Why refusals of direct SQL are not recorded; empty where they are.
};

/// What a migration does beside the installation of the schema.
struct migration_extras {
    /// Keys with which gateways sign. With any, `fencing.enter` requires from then on a lease_id signed with one of
    /// them; a key is a bound parameter and appears in no error.
    std::vector<std::string> proof_keys;
    /// The role as which gateways log in: created if it is missing, and made a member of fencing_gateway. Empty: none.
    std::string gateway_role;
};

/// Installs or updates the schema `fencing`: runs the scripts (name, SQL text) in order in one transaction. After the
/// commit it checks whether the recorder of refusals works.
///
/// In:      `conninfo` of a role that may create roles and schemas, not of the gateways' role. Scripts may run again
///          and contain no BEGIN, COMMIT or psql commands.
/// Out:     the version that the database has now.
/// Errors:  storage_unavailable (no connection) · unprocessable with the script's name and the server's message;
///          nothing was changed.
/// Threads: any; blocks. Two migrations at one time run one after the other: the first script locks a table.
result<migration> migrate(const std::string& conninfo, const std::vector<std::pair<std::string, std::string>>& scripts,
                          const migration_extras& extras = {});

}  // namespace fencegate::pg
