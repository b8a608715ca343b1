#include <gateway/pg/connection/role_call.hpp>

namespace fencegate::pg {

const std::string& take_role_sql() {
    // The claims first, and in one statement: a role may not set what another has set.
    static const std::string sql = "select set_config('request.jwt.claims', $2, true), set_config('role', $1, true)";
    return sql;
}

compat::parameters take_role_parameters(const database_identity& identity) {
    return {identity.role, identity.claims};
}

const std::string& leave_role_sql() {
    static const std::string sql =
        "select set_config('role', 'none', true), set_config('request.jwt.claims', '', true)";
    return sql;
}

}  // namespace fencegate::pg
