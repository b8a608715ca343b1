#pragma once

#include <gateway/domain/history_item.hpp>
#include <gateway/pg/connection/session.hpp>
#include <gateway/pg/connection/sql_value.hpp>

namespace fencegate::pg {

/// Maximum number of items of one page, whatever the query's limit is.
inline constexpr std::size_t history_page_max = 1'000;
/// A page ends after the item with which the JSON texts of the page reach this number of bytes.
inline constexpr std::size_t history_page_bytes_max = 4 << 20;

/// Maximum number of rows that one read by history_query::ids looks at, so that its time has a bound however few rows
/// match. Ids have gaps, of 2^32 after a change of the storage generation.
inline constexpr std::int64_t history_block_max = 20'000;

/// Returns the statement that reads up to `limit` rows. A pure function.
statement history_sql(const history_query& query);

/// Reads one page, of at most history_page_max items and about history_page_bytes_max bytes. Throws as session::exec
/// does.
history_page read_history(session& session, const history_query& query);

/// The same for GET /v1/changes.
statement changes_sql(const change_query& query);
change_page read_changes(session& session, const change_query& query);

/// A lease whose events are looked for from a time on.
struct asked_lease {
    std::string resource;
    std::uint64_t token = 0;
    std::string grant;  ///< The `detail.grant` of a shared lease; empty of any other.
    std::chrono::system_clock::time_point since;
    /// From when on the row is looked for that recorded_lease::granted names; empty: it is not wanted.
    std::optional<std::chrono::system_clock::time_point> granted_since;
};

/// Returns what the history has of each of the leases, in the same order. Throws as session::exec does.
std::vector<recorded_lease> read_recorded_leases(session& session, const std::vector<asked_lease>& asked);

/// Reads the end of the history. Rows up to `last_id` of an earlier call are settled once none of its writers is among
/// the writers of a later call; a statement begun after the later call sees all of them. Throws as session::exec does.
history_tail read_history_tail(session& session);

/// Counts events, in order of time and event; buckets without events are left out. Throws as session::exec does.
std::vector<history_count> summarize_history(session& session, const history_summary_query& query);

/// Reads a resource's fence, counts its newest events and returns the last ones, at most `last_events`, all of one
/// moment. Throws as session::exec does.
resource_facts read_resource(session& session, const std::string& resource, std::size_t last_events);

/// Returns fencing.resource_at() as JSON. Throws as session::exec does.
std::string read_resource_at(session& session, const std::string& resource, std::chrono::system_clock::time_point at,
                             bool with_rows);

/// Calls fencing.keep_history(); with `keep_days` 0 it drops nothing. Throws as session::exec does.
history_upkeep keep_history(session& session, unsigned keep_days);

}  // namespace fencegate::pg
