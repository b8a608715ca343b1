#pragma once

#include <gateway/domain/history_item.hpp>
#include <gateway/domain/write_request.hpp>

#include <lockcore/types.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace fencegate {

/// Rows of another table in each row of an answer: those to which a foreign key of one of the two tables leads.
struct embedded_table {
    std::string hint;            ///< The name of the foreign key or of one of its columns; empty: there is only one.
    bool inner = false;          ///< Leave out the outer rows that have no such row.
    std::string pointer_prefix;  ///< Of the parameters that concern it, such as `orders.`.
    row_selection rows;
};

/// Whether and how to count also the rows beyond limit and offset.
enum class row_count {
    none,
    exact,
    planned,   ///< As the planner of PostgreSQL estimates.
    estimated  ///< Exact up to row_selection::limit of the configuration, else planned.
};

/// Asks for rows of an exposed table.
struct table_query : row_selection {
    std::string table;
    row_count count = row_count::none;
    std::int64_t counted_max = 0;  ///< With `estimated`: the most rows that are counted.
};

/// A parameter of a query string that is an argument, if the function has one of this name, and else a part of `rows`.
struct query_argument {
    std::string name;
    std::string text;
    std::optional<std::string> fault{};  ///< Why it can't be a part of `rows`.
};

/// Asks for the value of an exposed function that changes nothing: one declared stable or immutable.
struct function_query {
    std::string function;
    std::vector<assignment> args;
    row_selection rows;      ///< Which rows of a set.
    std::int64_t limit = 0;  ///< The most rows of a set, the limit of the configuration.
    bool count = false;      ///< Whether to count also the rows of a set beyond limit and offset.
    std::vector<query_argument> parameters{};
};

/// The fences that a fenced read raises before it reads.
struct read_fence {
    fences_to_raise fences;
    actor initiator;
};

struct read_request {
    std::variant<table_query, function_query> query;
    std::optional<read_fence> fence;   ///< Empty: a plain read.
    database_identity_ptr identity{};  ///< In whose name the query runs.
    row_format format = row_format::json;
};

struct read_outcome {
    std::string json;                   ///< Rows in the format, or the function's value. Empty: it returns nothing.
    bool is_set = false;                ///< `json` is an array of rows, of a table or a function that returns a set.
    std::int64_t rows = 0;              ///< Number of rows in `json`.
    std::optional<std::int64_t> total;  ///< Number of rows without limit and offset, if the query asked for it.
    std::vector<fence_state> fences;    ///< Of a fenced read.
    std::shared_ptr<reserved_memory> memory;  ///< Reserved from the answers' budget for `json`; null if that is small.
};

/// What a read may cost the database, judging by its kind.
enum class read_cost {
    cheap,
    expensive,  ///< May read many more rows than it returns: a search, a summary, an export.
    continued   ///< The next part of an expensive read that was admitted: a full queue does not refuse it.
};

}  // namespace fencegate
