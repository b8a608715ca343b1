#pragma once

#include <gateway/domain/history_item.hpp>
#include <gateway/pg/session.hpp>
#include <gateway/pg/sql_value.hpp>

namespace fencegate::pg {

/// Most items of one page, whatever is asked for.
inline constexpr std::size_t history_page_max = 1'000;

/// The query for a page and one row more, which tells whether items follow. Pure.
statement history_sql(const history_query& query);

/// Reads one page. Throws what session::exec throws.
history_page read_history(session& via, const history_query& query);

}  // namespace fencegate::pg
