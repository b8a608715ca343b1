#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/pg/connection/session_slot.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace fencegate::pg {

/// What a crash of PostgreSQL could take back of what a read has seen: commits with synchronous_commit = off are
/// visible before they are on disk.
struct snapshot_state {
    enum class durability {
        durable,    ///< The read ended with a commit of its own that waited for the disk.
        flushed,    ///< The log was on disk up to its end, and no standby has to confirm it.
        unflushed,  ///< Part of the log was not on disk yet.
        replicated  ///< synchronous_standby_names is set: the local disk proves nothing.
    };
    durability seen = durability::unflushed;
    std::uint64_t transaction_end = 0;              ///< The snapshot shows no transaction with this id or a later one.
    std::chrono::steady_clock::time_point taken{};  ///< Before the log was looked at.
    std::chrono::steady_clock::time_point connected_since{};  ///< The session that read.
};

/// What a read gave, or the refusal that tells what it saw.
template <class T>
struct snapshot_of {
    snapshot_of() = default;
    snapshot_of(result<T> read, snapshot_state of) : value(std::move(read)), state(of) {}

    result<T> value;
    snapshot_state state;
};

/// The state of the log, in one row for read_snapshot_state: to be run behind the read, in the same transaction or a
/// later one.
const std::string& snapshot_state_sql();

/// Reads the row. `taken`: a moment before the statement was sent.
snapshot_state read_snapshot_state(const session_slot& slot, const answer_rows& rows,
                                   std::chrono::steady_clock::time_point taken);

/// Asks in a round trip of its own. Throws as session::exec does.
snapshot_state fetch_snapshot_state(session_slot& slot);

}  // namespace fencegate::pg
