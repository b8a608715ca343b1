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

/// A foreign key of a table.
struct catalog_foreign_key {
    std::string name;
    std::string target;  ///< The referenced table, as exposed_table::target.
    std::vector<std::string> columns;
    std::vector<std::string> target_columns;  ///< In the order of `columns`.
    bool is_unique = false;                   ///< At most one row of the table has the same values in `columns`.
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

/// Parses the names of columns: `["id", …]`.
///
/// Errors: throws a std::exception for any other text.
std::vector<std::string> parse_catalog_names(std::string_view json);

/// Parses the foreign keys of a table: `[{"name", "target", "columns", "target_columns", "is_unique"}, …]`.
///
/// Errors: throws a std::exception for any other text.
std::vector<catalog_foreign_key> parse_catalog_foreign_keys(std::string_view json);

}  // namespace fencegate::pg
