#pragma once

#include <memory>
#include <string>

namespace fencegate {

/// In whose name statements run in the database, so that its privileges and row security apply to the caller.
struct database_identity {
    std::string role;    ///< Taken by `set local role`; never empty. The gateway's role has to be a member of it.
    std::string claims;  ///< A JSON object, for the setting request.jwt.claims.
};

/// Null: the gateway's own role, without claims.
using database_identity_ptr = std::shared_ptr<const database_identity>;

}  // namespace fencegate
