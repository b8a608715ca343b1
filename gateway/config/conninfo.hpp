#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fencegate {

/// Returns whether libpq reads the connection string as a URI, not as keywords with values.
bool is_connection_uri(const std::string& conninfo);

/// Returns whether a valid connection string has a password, also an empty one.
bool has_password(const std::string& conninfo);

/// Returns the value of an option of a valid connection string; empty if it has none.
std::optional<std::string> find_option(const std::string& conninfo, std::string_view keyword);

/// Returns why libpq would refuse the connection string (keywords or URI) before it connects; empty if it would not.
/// The text names an option that resembles a known one; *** replaces everything else that libpq quotes, because it may
/// be a part of a password.
std::optional<std::string> find_conninfo_fault(const std::string& conninfo);

/// Returns a fault that names the first option of a valid connection string with the name of a file that is not
/// absolute; empty if there is none. libpq looks for such a file in the working directory.
std::optional<std::string> find_relative_file(const std::string& conninfo);

/// Returns whether the connection string is a URI whose user or password may contain an `@` that is not
/// percent-encoded: libpq then takes a part of the password for the host, the port or the database.
bool may_misread_password(const std::string& conninfo);

}  // namespace fencegate
