#pragma once

#include <gateway/domain/table_read.hpp>
#include <gateway/http/codec/fields.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::api {

/// Maximum number of conditions in one request; those inside or() and and() count one by one.
inline constexpr std::size_t conditions_max = 256;
/// Deepest nesting of or() and and().
inline constexpr std::size_t groups_depth_max = 8;
/// Maximum number of values of one in.().
inline constexpr std::size_t list_values_max = 1'000;
/// Maximum size in bytes of all patterns of like and ilike in one request. The time that PostgreSQL needs for one
/// comparison grows with the length of the text times that of the pattern, and no timeout interrupts it: at 2.5 ns a
/// step, a text of 1 MB takes 1.3 s in the worst case.
inline constexpr std::size_t pattern_bytes_max = 512;
/// Deepest nesting of embedded tables, and the most of them in one request.
inline constexpr std::size_t embedding_depth_max = 4;
inline constexpr std::size_t embedded_tables_max = 16;

/// Parses a condition in PostgREST's form: `stock` = `gte.3`, `sku` = `not.in.(a,"b,c")`, `or` =
/// `(stock.lt.3,and(note.is.null,sku.like.a*))`. Operators: eq, neq, lt, lte, gt, gte, like, ilike (with * for any
/// text), in, is. The column's name begins in `parameter` behind `prefix` bytes, the path of an embedded table.
///
/// Errors: a fault under the parameter's name is added to `faults`; the comparison is then unusable.
comparison parse_condition(std::string_view parameter, std::string_view text, http::fault_list& faults,
                           std::size_t prefix = 0);

/// Parses `sku,stock`, `left:stock` (the column stock under the name left), `*` (every column), and
/// `orders(id,lines(*))` or `mine:orders!hint!inner(id)` (embedded tables). Out: empty for `*` alone.
///
/// Limits: embedding_depth_max, embedded_tables_max.
std::vector<selected_column> parse_select(std::string_view text, http::fault_list& faults);

/// Parses `stock.desc.nullslast,sku`.
std::vector<sort_key> parse_order(std::string_view parameter, std::string_view text, http::fault_list& faults);

/// Parses `sku,note`: names of columns, as in on_conflict.
std::vector<std::string> parse_names(std::string_view parameter, std::string_view text, http::fault_list& faults);

/// Counts the comparisons of a condition.
std::size_t count_conditions(const comparison& condition);

/// Returns the length of all patterns of like and ilike in a condition. A % after another % does not count.
std::size_t count_pattern_bytes(const comparison& condition);

}  // namespace fencegate::api
