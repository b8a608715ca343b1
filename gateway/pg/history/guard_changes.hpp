#pragma once

#include <gateway/domain/generation_change.hpp>
#include <gateway/domain/guard_change.hpp>
#include <gateway/pg/connection/session.hpp>

#include <cstdint>
#include <vector>

namespace fencegate::pg {

/// Reads the changes of the guard that concern whether tables are protected, before a time and in the order of (at,
/// id). Every chunk is one short statement on an index.
class guard_changes {
  public:
    /// Maximum number of rows of one chunk.
    static constexpr int chunk = 1'000;

    guard_changes(session& session, std::int64_t to_us) : session_(session), to_us_(to_us) {}

    /// Returns the next rows; empty at the end. Throws as session::exec does.
    std::vector<guard_change> next_chunk();

  private:
    session& session_;
    std::int64_t to_us_;
    std::int64_t at_us_ = -1;  ///< Of the last row read.
    std::int64_t id_ = 0;
};

/// Returns the changes of the storage generation, in the order of their ids. Throws as session::exec does.
std::vector<generation_change> find_generation_changes(session& session);

}  // namespace fencegate::pg
