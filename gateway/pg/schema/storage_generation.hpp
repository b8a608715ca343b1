#pragma once

#include <gateway/pg/connection/session.hpp>

#include <lockcore/outcomes.hpp>
#include <lockcore/types.hpp>

#include <optional>
#include <string>
#include <vector>

namespace fencegate::pg {

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
/// In:  `seen`: the highest epoch on any node; floor_distance more if a node refused a floor because of that epoch. A floor
///      that is not lower is announced again, a new one is higher by floor_distance.
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
