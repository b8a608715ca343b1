#pragma once

#include <gateway/domain/database_identity.hpp>
#include <gateway/pg/connection/pqxx_compat.hpp>

#include <string>

namespace fencegate::pg {

/// Takes the role and sets the claims until the transaction ends or leave_role_sql() runs.
const std::string& take_role_sql();
compat::parameters take_role_parameters(const database_identity& identity);
/// Takes the gateway's own role again, and empties the claims.
const std::string& leave_role_sql();

}  // namespace fencegate::pg
