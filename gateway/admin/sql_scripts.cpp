#include <gateway/admin/sql_scripts.hpp>

#include <gateway/admin/example_files.hpp>
#include <gateway/admin/schema_files.hpp>

namespace fencegate::admin {

sql_scripts schema_scripts() {
    sql_scripts out;
    for (const auto& file : schema::files)
        out.emplace_back(file.name, file.text);
    return out;
}

sql_script shop_script() {
    return {"shop.sql", std::string(examples::file("shop.sql"))};
}

}  // namespace fencegate::admin
