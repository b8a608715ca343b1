#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/pg/write/write_session.hpp>

#include <optional>
#include <string>

namespace fencegate::pg {

enum class commit_status { committed, not_committed, unknown };

/// Commits the session's transaction, and finds out what became of it where the connection breaks meanwhile. One
/// transaction, one fate: of several writes that share it, any one may be named.
///
/// Out:     `committed`: it is on disk, and on the standbys that synchronous_standby_names asks for: statement_timeout
///          does not end that wait. `not_committed`: nothing was changed. `unknown`: PostgreSQL did not say in time;
///          the history will, by write_id.
/// Errors:  throws statement_failed where PostgreSQL refuses (deferred constraints and triggers speak here) and has
///          rolled back.
/// Timeout: `until` and silence_max.
/// Source:  docs/guard.md; fencing.write_landed waits for the guard row first, which the broken transaction holds
///          until it has ended, and begin_write had answered on that connection, so the row was locked.
commit_status commit_write(write_session& session, const std::string& write_id, const std::string& resource,
                           deadline until);

/// What the callers of a write that was not committed are told; none for `committed`.
std::optional<failure> failure_of(commit_status status);

}  // namespace fencegate::pg
