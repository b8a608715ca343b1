#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/pg/connection/session_slot.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace fencegate::pg {

/// How much of what a read has seen a crash of PostgreSQL could undo: commits with synchronous_commit = off are visible
/// before they are on disk.
struct snapshot_state {
    enum class durability {
        durable,    ///< The read ended with a commit of its own that waited for the disk.
        flushed,    ///< The write-ahead log was on disk up to its end, and no standby has to confirm it.
        unflushed,  ///< Part of the write-ahead log was not on disk yet.
        replicated  ///< synchronous_standby_names is set: the local disk proves nothing.
    };
    durability seen = durability::unflushed;
    std::uint64_t transaction_end = 0;              ///< The snapshot shows no transaction with this id or a later one.
    std::chrono::steady_clock::time_point taken{};  ///< A moment before the state of the log was read.
    std::chrono::steady_clock::time_point connected_since{};  ///< When the reading session was connected.
};

/// The result of a read, or a refusal that follows from what it saw, with the state of the snapshot.
template <class T>
struct snapshot_of {
    snapshot_of() = default;
    snapshot_of(result<T> read, snapshot_state seen) : value(std::move(read)), state(seen) {}

    result<T> value;
    snapshot_state state;
};

/// Returns the statement that reads the state of the log, one row for read_snapshot_state. It has to run after the
/// read, in the same transaction or a later one.
const std::string& snapshot_state_sql();

/// Reads that row. `taken`: a moment before the statement was sent.
snapshot_state read_snapshot_state(const session_slot& slot, const answer_rows& rows,
                                   std::chrono::steady_clock::time_point taken);

/// Reads the state in a round trip of its own. Throws as session::exec does.
snapshot_state fetch_snapshot_state(session_slot& slot);

}  // namespace fencegate::pg
