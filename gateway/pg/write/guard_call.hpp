#pragma once

#include <gateway/domain/write_request.hpp>
#include <gateway/pg/connection/pqxx_compat.hpp>
#include <gateway/pg/connection/session.hpp>

#include <lockcore/types.hpp>

#include <boost/json/object.hpp>

#include <string>
#include <vector>

namespace fencegate::pg {

/// The columns of begin_write_sql, begin_sealing_write_sql and begin_writes_sql.
struct guard_column {
    static constexpr int resource = 0;
    static constexpr int last_fencing_token = 1;
    static constexpr int accepted = 2;
};

/// The statement that calls fencing.begin_write. One row for each resource.
inline const std::string begin_write_sql =
    "select resource, last_fencing_token, accepted "
    "from fencing.begin_write($1::text[], $2::bigint, $3::uuid, $4::text, $5::text, $6::text, $7::jsonb, false)";
/// The same for a write of one resource whose token is sealed with it.
inline const std::string begin_sealing_write_sql =
    "select resource, last_fencing_token, accepted "
    "from fencing.begin_write($1::text[], $2::bigint, $3::uuid, $4::text, $5::text, $6::text, $7::jsonb, true)";
/// `wanted`: whether the history's row has add_wanted(), if the write is refused.
compat::parameters begin_write_parameters(const write_request& request, bool wanted);

/// Adds to the detail of a refused write the member `wanted`: what its operations on tables would have changed.
/// fencing.masked_wanted() leaves of it what the tables allow.
void add_wanted(const write_request& request, boost::json::object& detail);

/// The statement that calls fencing.begin_writes, for writes of one resource each; those of the same resource have the
/// same token. The same columns, one row for each write. `entered_for` has for each write the write_id for which its
/// resource is opened: select_write_sql has to select that write_id before the resource can be changed.
inline const std::string begin_writes_sql =
    "select resource, last_fencing_token, accepted from fencing.begin_writes($1::text[], $2::bigint[], "
    "$3::uuid[], $4::text[], $5::text[], $6::text[], $7::jsonb[], $8::uuid[])";
compat::parameters begin_writes_parameters(const std::vector<const write_request*>& requests,
                                           const std::vector<std::string>& entered_for);

/// The statement that selects one of those write_ids, so that the following statements change its resources.
inline const std::string select_write_sql = "select set_config('fencing.write_id', $1, true)";
/// The statement that names the write whose changes are recorded, where another one has opened its resource.
inline const std::string name_write_sql = "select set_config('fencing.changing_write_id', $1, true)";

/// The statement that calls fencing.seal_writes.
inline const std::string seal_sql =
    "select fencing.seal_writes($1::text[], $2::bigint[], $3::uuid[], $4::text[], $5::text[], $6::text[], "
    "$7::jsonb[])";
compat::parameters seal_parameters(const std::vector<const write_request*>& requests);
/// Sets the fences of a write's outcome to their values after the seal.
void mark_sealed(write_outcome& outcome);

/// The columns of raise_fences_sql.
struct raised_column {
    static constexpr int resource = 0;
    static constexpr int last_fencing_token = 1;  ///< What refuses a lower token.
    static constexpr int raised = 2;
    static constexpr int accepted = 3;
};

/// The statement that calls fencing.raise_read_fences, fencing.raise_fences or both, one row for each resource.
const std::string& raise_fences_sql(const fences_to_raise& wanted);
compat::parameters raise_fences_parameters(const fences_to_raise& wanted, const actor& initiator,
                                           const std::string& reason);
/// Reads its answer.
std::vector<fence_state> read_raised_fences(const answer_rows& rows);
/// Returns the fences to raise before a write: the read fences of what its lease shares.
fences_to_raise read_fences_of(const write_request& request);

/// Takes the role and sets the claims until the transaction ends or leave_role_sql runs. The claims first, and in one
/// statement: a role may not set what another has set.
inline const std::string take_role_sql =
    "select set_config('request.jwt.claims', $2, true), set_config('role', $1, true)";
compat::parameters take_role_parameters(const database_identity& identity);
/// Takes the gateway's own role again, and empties the claims.
inline const std::string leave_role_sql =
    "select set_config('role', 'none', true), set_config('request.jwt.claims', '', true)";

}  // namespace fencegate::pg
