#pragma once

#include <gateway/domain/generation_change.hpp>
#include <gateway/pg/connection/session.hpp>

#include <vector>

namespace fencegate::pg {

/// Returns the changes of the storage generation, in the order of their ids. Throws as session::exec does.
std::vector<generation_change> find_generation_changes(session& session);

}  // namespace fencegate::pg
