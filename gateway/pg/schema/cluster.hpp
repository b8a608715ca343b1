#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/guard_state.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/connection/session.hpp>

#include <lockcore/lease.hpp>
#include <lockcore/ports.hpp>
#include <lockcore/types.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::pg {

/// The version of the schema `fencing` that this program installs and needs.
inline constexpr int schema_version_needed = 1;

/// Checks that the connection leads to the server without a pooler; called before anything is prepared, which fails
/// behind one where an earlier connection has prepared the same name. Errors: storage_unavailable with what to do.
result<void> check_direct(session& session);

/// Checks that the connection leads to the server without a pooler, and that the schema `fencing` exists and has the
/// version needed.
///
/// Errors: storage_unavailable with what to do, such as to grant `role`. Throws session_lost.
result<void> check_schema(session& session, const std::string& role = "fencing_gateway");

/// Returns the state of the guard (fencing.guard_state). Throws as session::exec does.
boost::json::object read_guard_state(session& session);

/// Returns whether a recorder was set up, also one that fails, by the state of the guard.
bool has_recorder(const boost::json::object& guard_state);

/// Returns what would let a change past the guard, and its state. The history gets an event of each fault that is new
/// or gone (fencing.watch_guard). Throws as session::exec does.
guard_report watch_guard(session& session);

/// Throws as session::exec does.
history_extent read_history_extent(session& session);

/// The settings that all gateways of a cluster share; they must equal the row in fencing.cluster.
struct membership {
    lockcore::cell_id cell = 0;
    std::vector<std::string> node_names;
    std::size_t quorum = 0;
    std::chrono::milliseconds max_ttl{};
    std::chrono::milliseconds answer_bound{};
    bool takes_answer_bound = false;  ///< Use the cluster's answer_bound if a gateway has joined; else ours.
};

/// Compares the gateway's configuration with the row in fencing.cluster, which the first gateway writes.
///
/// Out: the cluster's answer_bound. Errors: invalid_request with the setting that differs. Throws statement_failed for
/// other SQLSTATEs, session_lost.
result<std::chrono::milliseconds> join_cluster(session& session, membership m);

/// Draws an epoch (docs/protocol.md R8b); it is committed when the call returns. Throws as session::exec does; after
/// session_lost an epoch may have been drawn, which does no harm.
lockcore::drawn_epoch draw_epoch(session& session, const lockcore::epoch_request& request);

/// Returns what the register knows about a node. Throws as session::exec does.
lockcore::node_record find_node_record(session& session, const std::string& node_name);

/// Records that the node did not sync every write in its present life; may be repeated. Throws as session::exec does.
void note_node_unsynced(session& session, const std::string& node_name);

/// See database::raise_fences; may be repeated. Throws as session::exec does.
std::vector<fence_state> raise_fences(session& session, const fences_to_raise& wanted, const actor& initiator,
                                      const std::string& reason);

/// See database::repair_fence; a repetition adds a second row to the history. Throws as session::exec does.
fence_state repair_fence(session& session, const lockcore::resource_name& resource, lockcore::fencing_token new_fence,
                         const actor& initiator, const std::string& reason);

/// The storage generation: under which pair of system identifier and timeline the fences were last known to be whole,
/// and whether that is the pair of the server that answered (docs/guard.md, Storage generation).
struct storage_state {
    bool current = false;  ///< The pair is that of this server. If not, PostgreSQL lets nothing in.
    /// "SYSTEM_IDENTIFIER/TIMELINE". stored: empty if it was marked as unknown; live: empty on a standby.
    std::string stored, live;
    lockcore::epoch floor{};  ///< Tokens below floor × 2^32 are refused.
};

/// Compares the stored pair with the live one. Throws as session::exec does.
storage_state find_storage_state(session& session);

/// To be called on a new connection: if this is another server than that of the stored pair, PostgreSQL lets nothing in
/// from now on. The guard itself compares only the timeline, which may be the same.
///
/// Out: the floor of this server; empty if its generation is not current, the schema is missing or the server is
///      read-only. Throws session_lost.
std::optional<lockcore::epoch> check_server(session& session);

/// Begins a change of the storage generation, or continues the one that another gateway began. It is committed when the
/// call returns.
///
/// In:  `seen`: the highest epoch on any node; floor_distance more if a node refused a floor because of that epoch. A
///      floor that is not lower is announced again, a new one is higher by floor_distance.
/// Out: the floor to be announced to the nodes; empty if the pair is current. Throws as session::exec does.
std::optional<lockcore::storage_floor> begin_generation_change(session& session, lockcore::epoch seen);

/// What the history's row of a change says beside the pairs and the floor.
struct change_report {
    std::string gateway;                   ///< Who made it.
    std::vector<std::string> lost_writes;  ///< The write ids that it acknowledged and that are gone.
};

/// Ends a change whose floor a majority of the nodes has: from then on tokens below it are refused, all others let in.
///
/// Out: false if it is not the change that was begun last for this server: then all is to be begun again. Throws as
///      session::exec does.
bool finish_generation_change(session& session, const std::string& change_id, const change_report& report);

/// Returns those of the writes that are not in the history. Throws as session::exec does.
std::vector<std::string> find_lost_writes(session& session, const std::vector<std::string>& write_ids);

}  // namespace fencegate::pg
