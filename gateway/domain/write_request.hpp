#pragma once

#include <gateway/domain/actor.hpp>
#include <gateway/domain/memory_budget.hpp>

#include <lockcore/types.hpp>

#include <boost/json/value.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace fencegate {

enum class comparison_operator { eq, neq, lt, lte, gt, gte, in, is, like, ilike, all_of, any_of };

/// `column operator value`. `in` takes an array; `is` takes null, true, false or "unknown"; `all_of` and `any_of` have
/// members in place of column and value.
struct comparison {
    std::string column;
    comparison_operator op = comparison_operator::eq;
    boost::json::value value;
    std::string pointer;   ///< Where it stood in the request, for errors.
    bool negated = false;  ///< Its opposite.
    bool literal = false;  ///< The value, or each of them, is PostgreSQL's own text, as a query string has it.
    std::vector<comparison> members{};
};

/// A value for a column or an argument; `pointer` is where it stood in the request.
struct assignment {
    std::string name;
    boost::json::value value;
    std::string pointer;
    bool literal = false;  ///< The value is PostgreSQL's own text.
};

/// A column in an answer.
struct selected_column {
    std::string column;
    std::string alias;  ///< Its name in the answer; no two alike.
};

/// What an insert does about a row that is there already.
struct conflict_rule {
    bool replace = false;                ///< Put the new values into it; else leave it as it is.
    std::vector<std::string> columns{};  ///< Of the unique index that tells. Empty, where nothing is replaced: any.
    std::string pointer;                 ///< Where the columns stood in the request.
};

struct update_operation {
    std::string table;
    std::vector<comparison> where;  ///< Never empty.
    std::vector<assignment> add;    ///< column = column + value, computed in the database.
    std::vector<assignment> set;    ///< column = value. add and set together are never empty and share no column.
    std::optional<std::int64_t> expect_rows;
};

struct insert_operation {
    std::string table;
    std::vector<assignment> values;  ///< May be empty: all defaults.
    std::optional<std::int64_t> expect_rows;
    /// Several rows in place of `values`, which then are those of the first: objects of the same keys.
    boost::json::array rows{};
    std::optional<conflict_rule> on_conflict{};
};

struct delete_operation {
    std::string table;
    std::vector<comparison> where;  ///< Never empty.
    std::optional<std::int64_t> expect_rows;
};

struct call_operation {
    std::string function;
    std::vector<assignment> args;
};

using operation = std::variant<update_operation, insert_operation, delete_operation, call_operation>;

/// Most operations in one write.
inline constexpr std::size_t operations_max = 64;

/// Under what the outcome of a write is kept, for repeats of it.
struct idempotency {
    std::string key;          ///< The caller's, 1 to 64 bytes; a principal's keys are its own.
    std::string fingerprint;  ///< SHA-256 of what was asked for, 64 hexadecimal digits.
    std::chrono::milliseconds keep_for{};
};

/// One transaction: the guard, the operations in order, the history row; all or nothing.
struct write_request {
    std::string write_id;  ///< A UUID made by the gateway; finds the write in the history, and tells after a broken
                           ///< commit whether it landed.
    std::vector<lockcore::resource_name> resources;  ///< What the lease covers, sorted.
    lockcore::fencing_token token{};
    actor by;
    std::vector<operation> operations;
    bool return_rows = false;               ///< Whether results carry the rows as they are after the operation.
    std::vector<selected_column> select{};  ///< Of these rows. Empty: every column that is exposed.
    bool bare_token = false;                ///< The token is another issuer's: the history says so.
    bool seal = false;  ///< Behind the operations every fence is raised past the token: it writes no more.
    std::optional<idempotency> repeatable{};  ///< Empty: the outcome is not kept.
};

/// What one operation did.
struct operation_result {
    std::int64_t rows_affected = 0;
    std::string json;  ///< Already JSON: the array of rows for a table, the value for a call. Empty: not asked for.
    bool is_call = false;
    bool is_void = false;                       ///< A call of a function that returns nothing.
    std::shared_ptr<reserved_memory> memory{};  ///< Of the answers' budget, for `json`; null where that is small.
};

struct fence_state {
    std::string resource;
    std::uint64_t last_fencing_token = 0;  ///< The fence after the write.
};

struct write_outcome {
    std::string write_id;
    lockcore::fencing_token token{};
    std::vector<fence_state> fences;
    std::vector<operation_result> results;  ///< One an operation, in order.
    bool sealed = false;
    bool replayed = false;       ///< It was kept from an earlier call with the same idempotency key,
    bool rows_left_out = false;  ///< without its rows and values, for they were too large.
};

}  // namespace fencegate
