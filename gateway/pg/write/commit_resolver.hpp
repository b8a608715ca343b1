#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/pg/write/write_session.hpp>

#include <optional>
#include <string>

namespace fencegate::pg {

enum class commit_status { committed, not_committed, unknown };

/// Commits the session's transaction. Where the connection breaks during COMMIT, finds out whether it was committed.
///
/// In:      `write_id` and `resource` of any write of the transaction.
/// Out:     `committed`: it is on disk, and on the standbys of synchronous_standby_names (statement_timeout does not
///          end that wait). `not_committed`: nothing was changed. `unknown`: PostgreSQL did not answer in time; the
///          history answers later, by write_id.
/// Errors:  throws statement_failed where PostgreSQL refused and rolled back (deferred constraints and triggers).
/// Timeout: `until` and silence_max.
/// Source:  docs/guard.md; fencing.write_landed first locks the guard row, and so waits until the broken transaction
///          has ended: begin_write answered on that connection, so the transaction holds that lock.
commit_status commit_write(write_session& session, const std::string& write_id, const std::string& resource,
                           deadline until);

/// Returns the failure for the callers of a write; empty for `committed`.
std::optional<failure> failure_of(commit_status status);

}  // namespace fencegate::pg
