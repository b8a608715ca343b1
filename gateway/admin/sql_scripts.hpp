#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fencegate::admin {

/// A file's name and its text.
using sql_script = std::pair<std::string, std::string>;
using sql_scripts = std::vector<sql_script>;

/// sql/migrations/*.sql and sql/schema/*.sql as they were when the program was built, in the order of their names.
sql_scripts schema_scripts();
/// sql/examples/shop.sql.
sql_script shop_script();

}  // namespace fencegate::admin
