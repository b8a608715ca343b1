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

/// `column` ordered by. Without `nulls_first` as PostgreSQL has it: nulls last ascending, first descending.
struct sort_key {
    std::string column;
    bool descending = false;
    std::optional<bool> nulls_first;
};

/// Rows of an exposed table.
struct table_query {
    std::string table;
    std::vector<selected_column> select;  ///< Empty: every column that is exposed.
    std::vector<comparison> where;        ///< Empty: every row.
    std::vector<sort_key> order;
    std::int64_t limit = 0;
    std::int64_t offset = 0;
    bool count = false;  ///< Whether to count the rows without limit and offset too.
};

/// The value of an exposed function that changes nothing: one declared stable or immutable.
struct function_query {
    std::string function;
    std::vector<assignment> args;
    std::int64_t limit = 0;  ///< Rows of a function that returns a set.
};

/// What a fenced read raises before it reads.
struct read_fence {
    std::vector<lockcore::resource_name> resources;
    lockcore::fencing_token token{};
    actor by;
};

struct read_request {
    std::variant<table_query, function_query> what;
    std::optional<read_fence> fence;  ///< Empty: a plain read.
};

struct read_outcome {
    std::string json;                         ///< An array of rows, or the function's value. Empty: it returns nothing.
    bool is_set = false;                      ///< It is an array of rows, of a table or a function that returns a set.
    std::int64_t rows = 0;                    ///< Their number.
    std::optional<std::int64_t> total;        ///< Where the query asked to count.
    std::vector<fence_state> fences;          ///< Of a fenced read.
    std::shared_ptr<reserved_memory> memory;  ///< Of the answers' budget, for `json`; null where that is small.
};

}  // namespace fencegate
