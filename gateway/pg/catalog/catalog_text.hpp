#pragma once

#include <gateway/pg/catalog/catalog.hpp>

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::pg {

// The parts of fencing.api_catalog that PostgreSQL answers as JSON.

/// Parses the columns of a table or the arguments of a function: `[{"name", "type", …}, …]`.
///
/// Errors: throws a std::exception for any other text.
std::vector<catalog_field> parse_catalog_fields(std::string_view json);

/// Parses the operations of a table: `["select", …]`.
///
/// Errors: throws a std::exception for any other text.
std::set<std::string> parse_catalog_operations(std::string_view json);

}  // namespace fencegate::pg
