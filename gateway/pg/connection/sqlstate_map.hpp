#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/pg/connection/server_error.hpp>
#include <gateway/pg/connection/sql_value.hpp>

#include <chrono>
#include <span>
#include <string_view>

namespace fencegate::pg {

/// How long a caller is told to wait before it tries again after PostgreSQL was away.
inline constexpr std::chrono::milliseconds retry_after_unavailable{1'000};
/// The same after a serialization failure, a deadlock or a lock that did not come free.
inline constexpr std::chrono::milliseconds retry_after_conflict{100};

/// One row of the table: a SQLSTATE, or the class that its first two characters name.
struct sqlstate_rule {
    std::string_view code;  ///< Two characters: the class. Five: one code, which goes before its class.
    errc meaning;
    bool show_message;    ///< Whether the primary message may be shown to the caller.
    bool leaves_session;  ///< The session is of no further use (read-only standby, lost prepared statements, …).
};

/// The whole table, for the test that walks it. What is not in it is errc::unprocessable: the call is at fault, or an
/// application chose the code and the words for its callers (raise … using errcode).
std::span<const sqlstate_rule> sqlstate_rules();

/// The rule for a code; never fails.
sqlstate_rule rule_of(std::string_view sqlstate);

/// Whether a statement built from the catalog of before an `alter table` can have failed so: a name or a type that does
/// not fit, or a value read as what the column's type was.
bool may_be_outdated(std::string_view sqlstate);

/// What the caller is told. Facts: `sqlstate` always; `constraint` for class 23; `resource`, `fencing_token`,
/// `last_fencing_token` for the codes of `fencing`, as far as its DETAIL names them.
failure to_failure(const server_error& error);

/// The same, pointing at the value of the statement's parameter that PostgreSQL could not read.
failure to_failure(const server_error& error, const statement& failed);

/// Why PostgreSQL does not do the work, as a clause for callers that their operator understands.
std::string cause_of(std::string_view sqlstate);

/// PostgreSQL is away; nothing was changed.
failure unavailable(std::string detail);

/// The same, said as "<cause>; nothing was changed."
failure unavailable_because(std::string cause);

/// Logs what only an operator can mend (a missing grant, a full disk, a fault inside PostgreSQL); once a second at
/// most.
void log_for_operator(const server_error& error);

/// The slug of an errc as history and logs name it.
std::string_view slug_of(errc code);

}  // namespace fencegate::pg
