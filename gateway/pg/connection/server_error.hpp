#pragma once

#include <cstddef>
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

}  // namespace fencegate::pg
