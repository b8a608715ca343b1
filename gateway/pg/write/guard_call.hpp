#pragma once

#include <gateway/domain/write_request.hpp>
#include <gateway/pg/connection/pqxx_compat.hpp>

#include <lockcore/types.hpp>

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

/// The call of fencing.raise_fences. Columns: resource, last_fencing_token, found_token.
const std::string& raise_fences_sql();
compat::parameters raise_fences_parameters(const std::vector<lockcore::resource_name>& resources,
                                           lockcore::fencing_token to, const actor& by, const std::string& reason);

}  // namespace fencegate::pg
