#pragma once

#include <gateway/domain/history_evidence.hpp>
#include <gateway/pg/connection/session.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace fencegate::pg {

/// Which part of the history is walked. Times in microseconds since 1970.
struct walk_range {
    std::optional<std::int64_t> from_us;  ///< from_us <= at
    std::int64_t to_us = 0;               ///< at < to_us
    std::optional<std::string> resource_prefix;
};

/// Reads the rows that belong to resources, one resource after the other, each in the order of (at, id). Every chunk is
/// a short statement on an index that begins behind the last row: nothing is locked and no snapshot is held between
/// two.
class history_walk {
  public:
    /// Rows of one chunk.
    static constexpr int chunk = 5'000;

    history_walk(session& via, walk_range range) : via_(via), range_(std::move(range)) {}

    /// The next rows; empty at the end. Throws what session::exec throws.
    std::vector<history_evidence> next();

  private:
    session& via_;
    walk_range range_;
    std::string resource_;  ///< Of the last row read.
    std::int64_t at_us_ = 0;
    std::int64_t id_ = 0;
};

struct walk_bounds {
    std::optional<std::int64_t> from_us;
    std::int64_t to_us = 0;
    std::int64_t rows = 0;  ///< Of the whole history, as PostgreSQL estimates it.
};

/// Times as PostgreSQL reads them; `to` empty: its clock now. Throws statement_failed for what is no time.
walk_bounds find_bounds(session& via, const std::optional<std::string>& from, const std::optional<std::string>& to);

/// A token of a resource.
struct token_of_resource {
    std::string resource;
    std::int64_t token = 0;
};

/// Of these, the indexes of those that a lease_granted anywhere in the history speaks of.
std::vector<std::size_t> find_granted(session& via, const std::vector<token_of_resource>& asked);

/// A row that the walk passes by.
struct stray_row {
    std::int64_t id = 0;
    std::string event;
    std::string resource;  ///< Empty: it has none, although its event is of a resource.
};
inline constexpr int strays_max = 10'000;

/// Rows without the resource that their event has; and, if `skew_ms` is given, those of the guard that lie further than
/// that in the future of the server's clock.
std::vector<stray_row> find_strays(session& via, const walk_range& range, std::optional<std::int64_t> skew_ms);

struct fence_now {
    std::int64_t token = 0;
    bool unrecorded = false;  ///< Above the token that was asked about, and no row raised it to that.
};

/// The fences of these resources as they stand now, with the tokens that their last rows left; what has none is left
/// out.
std::unordered_map<std::string, fence_now> find_fences(session& via, const std::vector<token_of_resource>& last);

/// Whether an operator repaired the fence in a row with a higher id.
bool repaired_after(session& via, const std::string& resource, std::int64_t id);

}  // namespace fencegate::pg
