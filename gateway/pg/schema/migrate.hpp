#pragma once

#include <gateway/domain/failure.hpp>

#include <string>
#include <utility>
#include <vector>

namespace fencegate::pg {

/// What a migration left behind.
struct migration {
    int version = 0;             ///< Of the schema, as the scripts recorded it.
    std::string recorder_fault;  ///< Why refusals of direct SQL are not recorded; empty where they are.
};

/// Installs or updates the schema `fencing`: runs each (name, SQL text) in order, all of them in one transaction, and
/// gives the version that the database has then. The scripts may be run again, and hold no BEGIN, COMMIT or commands of
/// psql. After the commit it asks whether the recorder of refusals works.
///
/// With a proof key (the gateways' signing key): `fencing.enter` demands from then on a lease_id signed with it. The
/// key travels as a bound parameter and is in no error.
///
/// In:     a role that may create roles and schemas; not the gateways'.
/// Errors: storage_unavailable (no connection) · unprocessable with the script's name and the server's words; nothing
/// was changed. Threads: any; blocking. Two at one time wait for each other: the first script locks a table.
result<migration> migrate(const std::string& conninfo, const std::vector<std::pair<std::string, std::string>>& scripts,
                          const std::string& proof_key = {});

}  // namespace fencegate::pg
