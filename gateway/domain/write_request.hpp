#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/history_item.hpp>
#include <gateway/domain/memory_budget.hpp>

#include <lockcore/types.hpp>

#include <boost/json/value.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace fencegate {

/// In whose name statements run in the database, so that its privileges and row security apply to the caller.
struct database_identity {
    std::string role;    ///< Taken by `set local role`; never empty. The gateway's role has to be a member of it.
    std::string claims;  ///< A JSON object, for the setting request.jwt.claims.
};

/// Null: the gateway's own role, without claims.
using database_identity_ptr = std::shared_ptr<const database_identity>;

enum class comparison_operator { eq, neq, lt, lte, gt, gte, in, is, like, ilike, all_of, any_of };

/// The condition `column operator value`. `in` takes an array; `is` takes null, true, false or "unknown"; `all_of` and
/// `any_of` have members instead of column and value.
struct comparison {
    std::string column;
    comparison_operator op = comparison_operator::eq;
    boost::json::value value;
    std::string pointer;   ///< Where the request has the condition, for errors.
    bool negated = false;  ///< The opposite of the condition is to hold.
    bool literal = false;  ///< The value, or each of them, is text in PostgreSQL's notation, from a query string.
    std::vector<comparison> members{};
};

/// A value for a column or an argument; `pointer` is where the request has it.
struct assignment {
    std::string name;
    boost::json::value value;
    std::string pointer;
    bool literal = false;  ///< The value is text in PostgreSQL's notation.
};

struct embedded_table;

/// A column in an answer, or rows of another table in its place.
struct selected_column {
    std::string column;    ///< Empty: every exposed column. With `embedded` the name of the other table.
    std::string alias;     ///< Its name in the answer, unique there.
    bool as_text = false;  ///< As PostgreSQL writes the value, so that a client loses no digit of a number.
    std::shared_ptr<embedded_table> embedded{};  ///< Only in reads of tables; table_read.hpp.
};

/// A column to sort by. Without `nulls_first` PostgreSQL's default holds: nulls last ascending, first descending.
struct sort_key {
    std::string column;
    bool descending = false;
    std::optional<bool> nulls_first;
};

/// Which rows of a table or a function's set are wanted, and which of their columns.
struct row_selection {
    std::vector<selected_column> select;  ///< Empty: every column, those that are exposed of a table.
    std::vector<comparison> where;        ///< Empty: every row.
    std::vector<sort_key> order;
    std::int64_t limit = 0;
    std::int64_t offset = 0;
};

/// Whether a selection says more than that at most `limit` rows are wanted.
inline bool has_selection(const row_selection& rows, std::int64_t limit) {
    return !rows.select.empty() || !rows.where.empty() || !rows.order.empty() || rows.offset > 0 || rows.limit < limit;
}

/// Whether the answer has rows of other tables in its rows.
inline bool has_embedded(const row_selection& rows) {
    return std::ranges::any_of(rows.select, [](const selected_column& item) { return item.embedded != nullptr; });
}

/// The form of rows in an answer.
enum class row_format {
    json,                ///< A JSON array.
    json_without_nulls,  ///< A JSON array whose objects have no members that are null.
    csv                  ///< RFC 4180 with a line of names and \n between the lines; NULL is nothing, an empty text "".
};

/// What an insert does about a row that exists already.
struct conflict_rule {
    bool replace = false;  ///< True: update the row with the new values. False: leave it unchanged.
    /// Of the unique index that decides. Empty: with `replace` those of the primary key, else any index.
    std::vector<std::string> columns{};
    std::string pointer;  ///< Where the request has the columns.
};

struct update_operation {
    std::string table;
    std::vector<comparison> where;  ///< Never empty.
    std::vector<assignment> add;    ///< column = column + value, computed in the database.
    std::vector<assignment> set;    ///< column = value. add and set together are never empty and share no column.
    std::optional<std::int64_t> expect_rows;
    std::optional<std::int64_t> rows_max{};  ///< The most rows that it may affect; empty: any number.
};

struct insert_operation {
    std::string table;
    std::vector<assignment> values;  ///< May be empty: all defaults.
    std::optional<std::int64_t> expect_rows;
    /// Several rows, as objects. `values` then are the values of the first row, for every column that is set. A row
    /// that lacks one of them gets NULL there, with `missing_default` the column's default.
    boost::json::array rows{};
    std::optional<conflict_rule> on_conflict{};
    std::optional<std::int64_t> rows_max{};
    bool missing_default = false;
};

struct delete_operation {
    std::string table;
    std::vector<comparison> where;  ///< Never empty.
    std::optional<std::int64_t> expect_rows;
    std::optional<std::int64_t> rows_max{};
};

struct call_operation {
    std::string function;
    std::vector<assignment> args;
    std::optional<row_selection> rows{};  ///< Which rows of the function's set are returned; empty: its value as it is.
    std::optional<std::int64_t> expect_rows{};  ///< Of the rows that are returned; with `rows` only, as `rows_max`.
    std::optional<std::int64_t> rows_max{};
};

using operation = std::variant<update_operation, insert_operation, delete_operation, call_operation>;

/// Maximum length in bytes of the name of a table, column, function or argument.
inline constexpr std::size_t name_bytes_max = 128;
/// Maximum number of operations in one write.
inline constexpr std::size_t operations_max = 64;

/// The key under which the outcome of a write is kept, for repetitions of the call.
struct idempotency_key {
    std::string key;          ///< Idempotency-Key of the call, 1 to 64 bytes; every principal has its own keys.
    std::string fingerprint;  ///< SHA-256 of the request, 64 hexadecimal digits.
    std::chrono::milliseconds keep_for{};
};

/// A guarded write: the guard, the operations in order and the history row, all or nothing.
struct write_request {
    /// A UUID that the gateway makes. The history names the write by it, and after a connection broke during COMMIT it
    /// shows whether the write was committed.
    std::string write_id;
    std::vector<lockcore::resource_name> resources;  ///< What the lease covers, sorted; without what it shares.
    lockcore::fencing_token token{};
    actor initiator;
    std::vector<operation> operations;
    bool return_rows = false;               ///< Whether results carry the rows as they are after the operation.
    std::vector<selected_column> select{};  ///< Columns of these rows. Empty: every exposed column.
    row_format format = row_format::json;   ///< Of these rows.
    bool bare_token = false;                ///< The token is from another issuer; the history records that.
    bool seal = false;  ///< After the operations, raise every fence to token + 1, so that the token can write no more.
    std::optional<idempotency_key> key{};           ///< Empty: the outcome is not kept.
    database_identity_ptr identity{};               ///< In whose name the operations run.
    std::vector<lockcore::resource_name> shared{};  ///< What the lease shares: read, not changed.
};

/// What one operation did.
struct operation_result {
    std::int64_t rows_affected = 0;
    /// The rows of a table or of a call with `rows`, or the value of a call, as JSON text or in the write's format.
    /// Empty: not asked for.
    std::string json;
    bool is_call = false;
    bool is_void = false;  ///< A call of a function that returns nothing.
    /// Reserved from the answers' budget for `json`; null if that is small.
    std::shared_ptr<reserved_memory> memory{};
    std::optional<std::int64_t> total{};  ///< Of a call with `rows`: the number of rows without limit and offset.
};

/// Fences to raise to a token: those of `resources`, and the read fences of those that a lease shares. Not both empty.
struct fences_to_raise {
    std::vector<lockcore::resource_name> resources;
    std::vector<lockcore::resource_name> shared{};
    lockcore::fencing_token token{};
    bool seals = false;      ///< Raises the fences of `resources` above the token.
    std::string write_id{};  ///< The write that reads what is shared; may be empty.
};

struct fence_state {
    std::string resource;
    std::uint64_t last_fencing_token = 0;  ///< The fence after the write.

    /// Whether this is the floor that a change of the storage generation has set. No token is a multiple of 2^32.
    bool is_floor() const { return last_fencing_token > 0 && last_fencing_token % lockcore::tokens_per_epoch == 0; }
};

struct write_outcome {
    std::string write_id;
    lockcore::fencing_token token{};
    std::vector<fence_state> fences;
    std::vector<operation_result> results;  ///< One for each operation, in order.
    bool sealed = false;
    bool replayed = false;       ///< The kept outcome of an earlier call with the same idempotency key.
    bool rows_left_out = false;  ///< Kept without its rows and values, because they were too large.
};

}  // namespace fencegate
