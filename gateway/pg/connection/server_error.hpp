#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fencegate::pg {

/// What PostgreSQL said about a statement that failed.
struct server_error {
    std::string sqlstate;  ///< Five characters; empty where the words did not come from a server.
    std::string
        message;  ///< The primary message, without DETAIL, HINT and CONTEXT, which may hold other people's rows.
    std::string
        detail;  ///< DETAIL. Only for codes of `fencing`, whose DETAIL is JSON made there; never shown as it is.
    std::string constraint;     ///< The constraint's name; empty where none is concerned.
    std::string origin;         ///< The function of PostgreSQL's own source that spoke; empty if not known.
    std::size_t parameter = 0;  ///< The bound parameter, counted from 1, that could not be read; 0: not known.
    bool fatal = false;         ///< The server ended the session.
};

/// Takes an error apart that libpq wrote with verbosity "verbose".
///
/// libpqxx keeps only that text. Its parts are told apart by libpq's labels at the beginning of a line; a row's own
/// text may contain such a line, so the primary message ends at the *first* label and the constraint is read after the
/// *last*: a forged label can shorten what is shown, never show more.
server_error parse_server_error(std::string_view text);

/// The parameter that CONTEXT names where PostgreSQL could not read it: `unnamed portal parameter $2 = '...'`, in
/// whatever language. 0: none.
std::size_t parameter_of(std::string_view context);

}  // namespace fencegate::pg
