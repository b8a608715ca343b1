#pragma once

#include <gateway/domain/history_item.hpp>
#include <gateway/pg/connection/session.hpp>
#include <gateway/pg/connection/sql_value.hpp>

namespace fencegate::pg {

/// Most items of one page, whatever is asked for.
inline constexpr std::size_t history_page_max = 1'000;
/// A page ends behind the item whose `detail` brings those of all its items to so many bytes.
inline constexpr std::size_t history_page_bytes_max = 4 << 20;

/// The query for up to `limit` rows. Pure.
statement history_sql(const history_query& query);

/// Reads one page, of history_page_max items and about history_page_bytes_max at most. Throws what session::exec
/// throws.
history_page read_history(session& via, const history_query& query);

/// Rows up to an id of an earlier call are settled once none of its writers is among those of a later one, and may then
/// be read by a statement begun after that later one.
history_tail read_history_tail(session& via);

/// In order of time and event; buckets without events are left out.
std::vector<history_count> summarize_history(session& via, const history_summary_query& query);

resource_facts read_resource(session& via, const std::string& resource);

/// `keep_days` 0: nothing is dropped.
history_upkeep keep_history(session& via, unsigned keep_days);

}  // namespace fencegate::pg
