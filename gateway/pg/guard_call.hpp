#pragma once

#include <gateway/domain/write_request.hpp>
#include <gateway/pg/pqxx_compat.hpp>

#include <string>
#include <vector>

namespace fencegate::pg {

/// The call of fencing.begin_write. Columns: resource, last_fencing_token, accepted.
const std::string& begin_write_sql();
compat::parameters begin_write_parameters(const write_request& request);

/// The call of fencing.begin_writes for writes of one resource each, no resource twice. Columns as above, a row a
/// write. `turns` are those of turn_sql() at which they are open: a write_id each.
const std::string& begin_writes_sql();
compat::parameters begin_writes_parameters(const std::vector<const write_request*>& requests,
                                           const std::vector<std::string>& turns);

/// What gives one of those its turn.
const std::string& turn_sql();

}  // namespace fencegate::pg
