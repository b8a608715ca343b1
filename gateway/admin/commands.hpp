#pragma once

#include <gateway/admin/digest_checker.hpp>
#include <gateway/config/config.hpp>
#include <gateway/pg/schema/migrate.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::admin {

/// The name and the text of a file.
using sql_script = std::pair<std::string, std::string>;
using sql_scripts = std::vector<sql_script>;

/// Returns sql/migrations/*.sql and sql/schema/*.sql as of the build of this program, in the order of their names.
sql_scripts schema_scripts();
/// Returns sql/examples/shop.sql.
sql_script shop_script();

/// Checks the servers of a configuration without changing anything, and prints one line for each Redis node,
/// PostgreSQL, the schema, the cluster's row, the guard and the recorder. Blocks until the end.
///
/// Out: exit_ok if everything fits, else exit_unavailable.
int check(const config& cfg);

/// Declares the storage generation unknown, so that nothing is written under any token given so far: the running
/// gateways set a floor above all of them. Waits up to half a minute until one has done so, and prints the floor.
///
/// In:  `conninfo` of the role that owns the schema fencing. `reason` is for the history.
/// Out: an exit code of gateway/domain/exit_code.hpp; exit_unavailable if no gateway has set the floor yet: PostgreSQL
///      lets nothing in until one does. exit_failed if PostgreSQL refused the call, as after lock_timeout.
int fence_all(const std::string& conninfo, const std::string& reason);

struct erase_options {
    std::string conninfo;            ///< Of the role that owns the schema fencing.
    audit_config audit;              ///< Its keys are those of digests.
    std::vector<std::string> names;  ///< Each as it is stored, as a whole.
    std::string reason;              ///< For the history, without the names.
};

/// Puts a random pseudonym in place of names in the history, in recorded changes and in other tables of the schema, and
/// signs digests that replace those of the changed rows. Each digest's rows are one transaction: what is done stays
/// done if it ends early, and a repetition does the rest. Blocks until the end, which may take minutes.
///
/// Out: an exit code of gateway/domain/exit_code.hpp. exit_failed: PostgreSQL refused, as under a legal hold; digests
///      have no key; or the rows of a digest are not those that it has, so that nothing more was changed.
int erase(const erase_options& options);

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

struct verify_options {
    std::optional<std::string> from, to;  ///< Times as PostgreSQL reads them; `to` empty: the start of the run.
    std::optional<std::string> resource_prefix;
    std::int64_t skew_ms = 1'000;       ///< The largest difference between the clocks of two gateways.
    bool allow_missing_grants = false;  ///< Only count writes without a grant in the history.
    bool json = false;
    digest_options digests;
};

/// Exit codes of `fencegate verify`.
enum verify_exit_code : int { proved = 0, broken = 1, could_not_run = 2 };

/// Replays the history of a live system and prints a report of one page, or one JSON object: proved, or the rows that
/// violate a promise (history_checker.hpp). Reads in short statements and takes no locks; shows its progress on
/// standard error if that is a terminal. Blocks until the end.
///
/// Out: a verify_exit_code, or exit_usage if `from` or `to` is no time or they select no time.
int verify(const postgres_config& database, const verify_options& options);

}  // namespace fencegate::admin
