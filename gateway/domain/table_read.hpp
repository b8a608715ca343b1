#pragma once

#include <gateway/domain/actor.hpp>
#include <gateway/domain/write_request.hpp>

#include <lockcore/types.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace fencegate {

/// A column to sort by. Without `nulls_first` PostgreSQL's default holds: nulls last ascending, first descending.
struct sort_key {
    std::string column;
    bool descending = false;
    std::optional<bool> nulls_first;
};

/// Asks for rows of an exposed table.
struct table_query {
    std::string table;
    std::vector<selected_column> select;  ///< Empty: every exposed column.
    std::vector<comparison> where;        ///< Empty: every row.
    std::vector<sort_key> order;
    std::int64_t limit = 0;
    std::int64_t offset = 0;
    bool count = false;  ///< Whether to count also the rows beyond limit and offset.
};

/// Asks for the value of an exposed function that changes nothing: one declared stable or immutable.
struct function_query {
    std::string function;
    std::vector<assignment> args;
    std::int64_t limit = 0;  ///< Maximum number of rows of a function that returns a set.
};

/// The fences that a fenced read raises before it reads.
struct read_fence {
    std::vector<lockcore::resource_name> resources;
    lockcore::fencing_token token{};
    actor initiator;
};

struct read_request {
    std::variant<table_query, function_query> query;
    std::optional<read_fence> fence;   ///< Empty: a plain read.
    database_identity_ptr identity{};  ///< In whose name the query runs.
};

struct read_outcome {
    std::string json;                   ///< An array of rows, or the function's value. Empty: it returns nothing.
    bool is_set = false;                ///< `json` is an array of rows, of a table or a function that returns a set.
    std::int64_t rows = 0;              ///< Number of rows in `json`.
    std::optional<std::int64_t> total;  ///< Number of rows without limit and offset, if the query asked for it.
    std::vector<fence_state> fences;    ///< Of a fenced read.
    std::shared_ptr<reserved_memory> memory;  ///< Reserved from the answers' budget for `json`; null if that is small.
};

}  // namespace fencegate
