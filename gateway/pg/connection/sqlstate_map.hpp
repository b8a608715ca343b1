#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/connection/sql_value.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fencegate::pg {

/// The error with which PostgreSQL refused a statement.
struct server_error {
    std::string sqlstate;  ///< Five characters; empty where the error did not come from a server.
    /// The primary message, without DETAIL, HINT and CONTEXT, which may contain rows of other callers.
    std::string message;
    /// DETAIL. Used only for SQLSTATEs of the schema `fencing`, where it is JSON; never shown as it is.
    std::string detail;
    std::string constraint;     ///< The constraint's name; empty where no constraint is concerned.
    std::string origin;         ///< The function in PostgreSQL's source that raised the error; empty if unknown.
    std::size_t parameter = 0;  ///< The bound parameter, counted from 1, that could not be read; 0: unknown.
    bool fatal = false;         ///< The server ended the session.
    bool in_code = false;       ///< Code in the database was running: a function, trigger or policy.
};

/// Parses an error text that libpq wrote with verbosity "verbose".
///
/// libpqxx keeps only that text. libpq's labels at the beginning of a line separate its parts. Text of a row may
/// contain such a line, so the primary message ends at the *first* label and the constraint is read after the *last*: a
/// forged label can shorten what is shown, never show more.
server_error parse_server_error(std::string_view text);

/// Returns the parameter that CONTEXT names where PostgreSQL could not read it, in any language of the server's
/// messages: `unnamed portal parameter $2 = '...'`. 0: none.
std::size_t parameter_of(std::string_view context);

/// Whether CONTEXT names code in the database that was running, and not only a parameter that could not be read.
bool names_code(std::string_view context);

/// Retry-After where PostgreSQL was unreachable.
inline constexpr std::chrono::milliseconds retry_after_unavailable{1'000};
/// Retry-After for a serialization failure, a deadlock or lock_timeout.
inline constexpr std::chrono::milliseconds retry_after_conflict{100};

/// One row of the table: a SQLSTATE, or the class that its first two characters name.
struct sqlstate_rule {
    std::string_view code;  ///< Two characters: a class. Five characters: one code, which has priority over its class.
    errc meaning;
    bool show_message;  ///< Whether the primary message may be shown to the caller.
    bool ends_session;  ///< The session can't be used further (read-only standby, lost prepared statements, …).
};

/// Returns the whole table, for the test of its rows. Codes without a row are errc::unprocessable: the call is at
/// fault, or an application chose the code and the message for its callers (raise … using errcode).
std::span<const sqlstate_rule> sqlstate_rules();

/// Returns the rule for a code; never fails.
sqlstate_rule rule_of(std::string_view sqlstate);

/// Whether the error may come from a statement that was built from a catalog older than an `alter table`: a name or
/// type that does not fit, a value in the form of the column's former type, or a type that was dropped between two
/// look-ups (a new session reports that too).
bool may_be_outdated(std::string_view sqlstate);

/// Whether the error says that a prepared statement, or a plan that the session keeps for a function, no longer fits
/// what is in the database: a type, table or function was replaced. Only another session is sure to have none of it.
bool is_outdated_statement(const server_error& error);

/// Returns errc::storage_unavailable for a call that an outdated statement has ended after code of an application ran.
failure outdated_during_call();

/// Whether the schema `fencing`, or a table or function in it that the statement needs, is missing.
bool is_guard_missing(const server_error& error);

/// Returns the failure for the caller. Facts: `sqlstate` always; `constraint` for class 23; `resource`,
/// `fencing_token`, `last_fencing_token` for the codes of `fencing`, as far as DETAIL has them; `cause` if
/// is_guard_missing().
failure to_failure(const server_error& error);

/// Returns the failure of an operation of the caller, whose code may name what never was in `fencing`: without that
/// `cause`, and with a pointer to the value of the parameter that PostgreSQL could not read, or to the only null where
/// a column or its domain takes none.
failure to_failure(const server_error& error, const statement& failed);

/// Returns errc::forbidden for an error that says that the role of the caller may not do it, or may not be taken; else
/// empty.
std::optional<failure> refusal_of_role(const server_error& error);

/// Returns errc::stale_fencing_token for a token that a fence refuses; an empty fence is not named. `outcome`: "nothing
/// was changed", for example.
failure stale_token(lockcore::fencing_token token, const fence_state& fence, std::string_view outcome);

/// The fact `cause` of every failure that a change of the storage generation has caused.
inline constexpr std::string_view generation_changed = "storage-generation-changed";

/// Returns why PostgreSQL did not do the work, as a clause for callers that their operator understands.
std::string cause_of(std::string_view sqlstate);

/// What an operator does about a read-only PostgreSQL, as the rest of a clause.
inline constexpr const char* read_only_advice = ": name the primary (target_session_attrs=read-write)";

/// Returns errc::storage_unavailable with `detail`.
failure unavailable(std::string detail);

/// Returns errc::storage_unavailable because the storage generation changes, with the fact `cause`.
failure unavailable_during_change();

/// The fact `cause` where a part of the guard is missing.
inline constexpr std::string_view guard_missing = "guard-missing";

/// Returns errc::storage_unavailable because a part of the guard is missing, with the fact `cause`.
failure unavailable_without_guard();

/// Returns errc::storage_unavailable with the detail "<cause>; nothing was changed."
failure unavailable_because(std::string cause);

/// Logs an error that only an operator can resolve (a missing grant, a full disk, a fault inside PostgreSQL), each
/// SQLSTATE at most once a second.
void log_for_operator(const server_error& error);

/// Returns the slug under which the history and logs name an errc.
std::string_view slug_of(errc code);

}  // namespace fencegate::pg
