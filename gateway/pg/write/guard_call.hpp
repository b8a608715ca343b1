#pragma once

#include <gateway/domain/write_request.hpp>
#include <gateway/pg/connection/pqxx_compat.hpp>

#include <lockcore/types.hpp>

#include <string>
#include <vector>

namespace fencegate::pg {

/// Returns the statement that calls fencing.begin_write. Columns: resource, last_fencing_token, accepted.
const std::string& begin_write_sql();
compat::parameters begin_write_parameters(const write_request& request);

/// Returns the statement that calls fencing.begin_writes, for writes of one resource each, no resource twice. The same
/// columns, one row for each write. `open_for` has for each write the write_id for which its resource is opened:
/// select_write_sql() has to select that write_id before the resource can be changed.
const std::string& begin_writes_sql();
compat::parameters begin_writes_parameters(const std::vector<const write_request*>& requests,
                                           const std::vector<std::string>& open_for);

/// Returns the statement that selects one of those write_ids, so that the following statements change its resources.
const std::string& select_write_sql();

/// Returns the statement that calls fencing.raise_fences. Columns: resource, last_fencing_token, found_token.
const std::string& raise_fences_sql();
compat::parameters raise_fences_parameters(const std::vector<lockcore::resource_name>& resources,
                                           lockcore::fencing_token new_fence, const actor& initiator,
                                           const std::string& reason);

}  // namespace fencegate::pg
