#pragma once

#include <gateway/domain/history_item.hpp>
#include <gateway/pg/connection/session.hpp>
#include <gateway/pg/connection/sql_value.hpp>

namespace fencegate::pg {

/// Maximum number of items of one page, whatever the query's limit is.
inline constexpr std::size_t history_page_max = 1'000;
/// A page ends after the item with which the `detail` texts of the page reach this number of bytes.
inline constexpr std::size_t history_page_bytes_max = 4 << 20;

/// Returns the statement that reads up to `limit` rows. A pure function.
statement history_sql(const history_query& query);

/// Reads one page, of at most history_page_max items and about history_page_bytes_max bytes. Throws as session::exec
/// does.
history_page read_history(session& session, const history_query& query);

/// Reads the end of the history. Rows up to `last_id` of an earlier call are settled once none of its writers is among
/// the writers of a later call; a statement begun after the later call sees all of them. Throws as session::exec does.
history_tail read_history_tail(session& session);

/// Counts events, in order of time and event; buckets without events are left out. Throws as session::exec does.
std::vector<history_count> summarize_history(session& session, const history_summary_query& query);

/// Reads a resource's fence and counts its newest events. Throws as session::exec does.
resource_facts read_resource(session& session, const std::string& resource);

/// Calls fencing.keep_history(); with `keep_days` 0 it drops nothing. Throws as session::exec does.
history_upkeep keep_history(session& session, unsigned keep_days);

}  // namespace fencegate::pg
