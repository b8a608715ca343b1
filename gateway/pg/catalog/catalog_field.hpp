#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::pg {

/// A column or an argument. `type` is written as in a cast, with its schema unless that is pg_catalog.
struct catalog_field {
    std::string name;
    std::string type;
    bool has_default = false;  ///< Arguments only.
    std::string base{};        ///< Columns only: the base type, where the type is a domain.
    std::string operators{};   ///< Columns only: the quoted schema of the type's operators; empty: pg_catalog.

    /// Returns the type that decides how values are read and added.
    const std::string& value_type() const { return base.empty() ? type : base; }
};

// What fencing.api_catalog has as JSON.

/// Parses the columns of a table or the arguments of a function: `[{"name", "type", …}, …]`.
///
/// Errors: throws a std::exception for any other text.
std::vector<catalog_field> parse_catalog_fields(std::string_view json);

/// Parses the operations of a table: `["select", …]`.
///
/// Errors: throws a std::exception for any other text.
std::set<std::string> parse_catalog_operations(std::string_view json);

}  // namespace fencegate::pg
