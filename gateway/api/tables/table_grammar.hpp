#pragma once

#include <gateway/domain/table_read.hpp>
#include <gateway/http/codec/fields.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::api {

/// Most conditions in one request, those inside or() and and() counted one by one.
inline constexpr std::size_t conditions_max = 256;
/// or() and and() in one another at most.
inline constexpr std::size_t groups_depth_max = 8;
/// Most values of one in.().
inline constexpr std::size_t list_values_max = 1'000;
/// Most bytes of all patterns of like and ilike in one request. PostgreSQL compares a text with a pattern in steps of
/// the text's length times the pattern's, and no timeout ends it in between: 2.5 ns a step, so that a text of 1 MB
/// takes 1.3 s at worst.
inline constexpr std::size_t pattern_bytes_max = 512;

/// A condition as PostgREST writes it in a query string: `stock` = `gte.3`, `sku` = `not.in.(a,"b,c")`,
/// `or` = `(stock.lt.3,and(note.is.null,sku.like.a*))`. Operators: eq, neq, lt, lte, gt, gte, like, ilike (with * for
/// any text), in, is.
///
/// Faults go by the parameter's name and are noted; then the comparison is of no use.
comparison parse_condition(std::string_view parameter, std::string_view text, http::fault_list& faults);

/// `sku,stock`, `left:stock` (the column stock under the name left), `*`: empty.
std::vector<selected_column> parse_select(std::string_view text, http::fault_list& faults);

/// `stock.desc.nullslast,sku`.
std::vector<sort_key> parse_order(std::string_view text, http::fault_list& faults);

/// `sku,note`: names of columns, as on_conflict has them.
std::vector<std::string> parse_names(std::string_view parameter, std::string_view text, http::fault_list& faults);

/// How many comparisons a condition holds.
std::size_t count_conditions(const comparison& one);

/// How long the patterns of like and ilike are in it, each % behind another left out.
std::size_t count_pattern_bytes(const comparison& one);

}  // namespace fencegate::api
