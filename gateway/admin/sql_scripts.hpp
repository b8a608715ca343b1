#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fencegate::admin {

/// The name and the text of a file.
using sql_script = std::pair<std::string, std::string>;
using sql_scripts = std::vector<sql_script>;

/// Returns sql/migrations/*.sql and sql/schema/*.sql as of the build of this program, in the order of their names.
sql_scripts schema_scripts();
/// Returns sql/examples/shop.sql.
sql_script shop_script();

}  // namespace fencegate::admin
