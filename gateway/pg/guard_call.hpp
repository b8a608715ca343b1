#pragma once

#include <gateway/domain/write_request.hpp>
#include <gateway/pg/pqxx_compat.hpp>

#include <string>

namespace fencegate::pg {

/// The call of fencing.begin_write. Columns: resource, last_fencing_token, accepted.
const std::string& begin_write_sql();
compat::parameters begin_write_parameters(const write_request& request);

}  // namespace fencegate::pg
