#pragma once

#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/connection/sql_value.hpp>

namespace fencegate::fuzz {

/// Returns a catalog with a table `inventory` of columns of many types and functions `restock` and `list`.
const pg::catalog& shop_catalog();

/// Checks that no text of a request got into a statement except in quotes.
/// What the product writes is in lower case and has no comments, so that a foreign word is found by a capital letter.
void check_statement(const pg::statement& statement);

}  // namespace fencegate::fuzz
