#pragma once

#include <gateway/pg/schema/migrate.hpp>

#include <string>

namespace fencegate::admin {

struct migrate_options {
    /// Of a role that may create schemas and roles.
    std::string conninfo;
    /// Adds the shop example.
    bool with_example = false;
    pg::migration_extras extras;
};

/// Installs or updates the schema fencing in one transaction and prints its new version. Blocks until the end.
///
/// Out: an exit code of gateway/domain/exit_code.hpp.
int migrate(const migrate_options& options);

}  // namespace fencegate::admin
