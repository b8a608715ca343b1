#pragma once

#include <gateway/domain/history_item.hpp>
#include <gateway/pg/connection/session.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace fencegate::pg {

/// The part of the history to read. Times are in microseconds since 1970.
struct walk_range {
    std::optional<std::int64_t> from_us;  ///< from_us <= at
    std::int64_t to_us = 0;               ///< at < to_us
    std::optional<std::string> resource_prefix;
};

/// Reads the rows that have a resource, one resource after the other, each in the order of (at, id). Every chunk is one
/// short statement on an index that continues after the last row, so that no lock and no snapshot is held between two
/// chunks.
class history_walk {
  public:
    /// Maximum number of rows of one chunk.
    static constexpr int chunk = 5'000;

    history_walk(session& session, walk_range range) : session_(session), range_(std::move(range)) {}

    /// Returns the next rows; empty at the end. Throws as session::exec does.
    std::vector<history_evidence> next_chunk();

  private:
    session& session_;
    walk_range range_;
    std::string resource_;  ///< Of the last row read.
    std::int64_t at_us_ = 0;
    std::int64_t id_ = 0;
};

struct walk_bounds {
    std::optional<std::int64_t> from_us;
    std::int64_t to_us = 0;
    std::int64_t rows = 0;  ///< PostgreSQL's estimate of the number of rows in the whole history.
};

/// Converts times that PostgreSQL reads; an empty `end` means its current time. Throws statement_failed for a text that
/// is no time.
walk_bounds find_bounds(session& session, const std::optional<std::string>& begin,
                        const std::optional<std::string>& end);

struct token_of_resource {
    std::string resource;
    std::int64_t token = 0;
};

/// Returns the indexes of those tokens for which the history has a lease_granted or lease_renewed at any time: either
/// shows that a majority of the nodes held the lease. A grant has no event if the gateway that asked the nodes for it
/// did not get their answers in time, and a repeated request then had it at another gateway.
std::vector<std::size_t> find_granted(session& session, const std::vector<token_of_resource>& asked);

/// A row that history_walk does not read.
struct unscanned_row {
    std::int64_t id = 0;
    std::string event;
    std::string resource;  ///< Empty: the row has no resource, although its event requires one.
};
inline constexpr int unscanned_rows_max = 10'000;

/// Finds rows without the resource that their event requires; if `skew_ms` is given, also rows of the guard whose time
/// is further than that ahead of the server's clock.
std::vector<unscanned_row> find_unscanned_rows(session& session, const walk_range& range,
                                               std::optional<std::int64_t> skew_ms);

struct current_fence {
    std::int64_t token = 0;
    bool unrecorded = false;  ///< The fence is above the token of the query, and no row of the history raised it there.
};

/// Returns the current fences of the resources. `last` has the token that the last row of each resource left. Resources
/// without a guard row are left out.
std::unordered_map<std::string, current_fence> find_fences(session& session,
                                                           const std::vector<token_of_resource>& last);

/// Whether a row with a higher id says that an operator repaired the fence.
bool is_repaired_after(session& session, const std::string& resource, std::int64_t id);

/// Returns the condition that a resource at or after the prefix begins with it: in the column's collation "C" these are
/// the names before the prefix whose last byte is one higher. Where no text has that byte, the names are compared.
inline std::string prefix_end(statement& target, std::string prefix) {
    constexpr unsigned char last_ascii = 0x7f;
    if (prefix.empty() || static_cast<unsigned char>(prefix.back()) >= last_ascii)
        return "starts_with(resource, " + target.bind(std::move(prefix)) + ")";
    ++prefix.back();
    return "resource < " + target.bind(std::move(prefix));
}

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
