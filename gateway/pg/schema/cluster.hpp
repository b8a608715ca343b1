#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/connection/session.hpp>
#include <gateway/pg/executor/membership.hpp>

#include <lockcore/ports.hpp>

#include <string>
#include <vector>

namespace fencegate::pg {

/// The version of the schema `fencing` that this program speaks; a newer database is fine, an older one is not.
inline constexpr int schema_version_needed = 4;

/// Whether the server is reached without a pooler between, and the schema `fencing` is there and new enough. Errors:
/// storage_unavailable, telling what to do, such as to grant `role`. Throws session_lost.
result<void> check_schema(session& via, const std::string& role = "fencing_gateway");

/// What would let a change past the guard; empty where all is well. Throws what session::exec throws.
std::vector<std::string> find_guard_faults(session& via);

/// Compares the gateway's configuration with the cluster's row, which the first gateway writes.
///
/// Errors: invalid_request with the line that differs. Throws statement_failed for other codes, session_lost.
result<void> join(session& via, const membership& m);

/// docs/protocol.md R8b: committed before it returns. Throws what session::exec throws; after session_lost an epoch may
/// have been drawn, which is harmless.
lockcore::drawn_epoch draw(session& via, const lockcore::epoch_request& request);

/// What the register knows of a node. Throws what session::exec throws.
lockcore::node_record find_node_record(session& via, const std::string& node_name);

/// Keeps that the node's life did not sync every write; repeating it is harmless. True. Throws what session::exec
/// throws.
bool note_node_unsynced(session& via, const std::string& node_name);

/// See fence_executor::raise; repeating it is harmless. Throws what session::exec throws.
std::vector<fence_state> raise(session& via, const std::vector<lockcore::resource_name>& resources,
                               lockcore::fencing_token to, const actor& by, const std::string& reason);

/// See fence_executor::repair; repeating it adds a second row to the history. Throws what session::exec throws.
fence_state repair(session& via, const lockcore::resource_name& resource, lockcore::fencing_token to, const actor& by,
                   const std::string& reason);

}  // namespace fencegate::pg
