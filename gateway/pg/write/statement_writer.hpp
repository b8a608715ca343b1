#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/connection/sql_value.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace fencegate::pg {

/// Why a request can't be turned into SQL.
struct plan_faults {
    std::vector<field_error> faults;
    bool unknown_name = false;  ///< A fault is a name that is not in the catalog; a newer catalog may have it.
};

/// How an answer is read from the result of a statement.
enum class answer_shape {
    affected,  ///< No rows; the count is the number of rows affected.
    rows,      ///< JSON array of the rows in pieces (split_into_pieces), with their count.
    value,     ///< JSON text or NULL in pieces.
    nothing,   ///< One row without columns (a function returning void).
};

/// Returns the operator with a blank on each side; empty where it takes no single value (in, is, all_of, any_of).
std::string_view sql_operator(comparison_operator op);

/// Maximum size in bytes of the rows or the value of one read, or of one operation of a write.
inline constexpr std::size_t answer_bytes_max = 64 << 20;
/// Bytes of one piece of an answer: a message of PostgreSQL, which libpq holds as a whole.
inline constexpr std::size_t answer_piece_bytes = 256 << 10;

/// The expression for a JSON array, as text, of the items `fencegate_item` of a set that a function returns.
inline const std::string items_array =
    "'[' || coalesce(string_agg(coalesce(to_json(fencegate_item)::text, 'null'), ','), '') || ']'";

/// Returns a statement that splits the JSON text in the column `json` of `inner`, which has one row, into pieces of a
/// bounded size, each in a row: the number of the text's bytes, the piece, and the other `columns`. Where the text is
/// NULL or longer than answer_bytes_max there is one row, whose piece is NULL.
std::string split_into_pieces(const std::string& inner, const std::vector<std::string>& columns);

/// The common part of the statements of writes and reads: looks up names in the catalog, binds values and writes
/// conditions.
///
/// Faults are added to the plan. What a function returns after a fault is meaningless; the caller continues, so that
/// all faults are found.
class statement_writer {
  public:
    statement_writer(const catalog& known, statement& target, plan_faults& plan)
        : known_(known), target_(target), plan_(plan) {}

    void add_fault(std::string pointer, std::string detail);
    /// Adds a fault about a name that a newer catalog may have.
    void add_unknown_name(std::string pointer, std::string detail);

    /// Returns the table if it is exposed for `operation`; else adds a fault and returns null.
    const exposed_table* find_table(const std::string& name, const char* operation, const std::string& pointer);
    const exposed_function* find_function(const std::string& name, const std::string& pointer);
    const catalog_field* find_column(const exposed_table& table, const std::string& table_name, const std::string& name,
                                     const std::string& pointer);

    /// Binds a value and returns its expression. `literal`: the value is text in PostgreSQL's notation, of any type.
    std::string bind_expression(std::string_view type, const boost::json::value& value, const std::string& pointer,
                                bool literal = false);

    /// Records that the parameters bound since the last call are at `pointer` in the request.
    void record_pointer(const std::string& pointer) { target_.pointers.resize(target_.parameters.size(), pointer); }

    /// Returns the conditions joined by `and`, over the table under the name `t`; empty without conditions.
    std::string conditions(const exposed_table& table, const std::string& table_name,
                           const std::vector<comparison>& where);

    /// Returns `"a" => $1::type, …`. A missing argument is a fault at `pointer`.
    std::string arguments(const exposed_function& function, const std::string& function_name,
                          const std::vector<assignment>& given, const std::string& pointer);

    /// Returns `t."a", t."b" as "c"`; every column of the table where `select` is empty. An unknown column is a fault
    /// of `select`.
    std::string columns(const exposed_table& table, const std::string& table_name,
                        const std::vector<selected_column>& select);

  private:
    std::string comparison_sql(const exposed_table& table, const std::string& table_name, const comparison& item);
    std::string column_sql(const catalog_field& column, const comparison& item);
    std::string is_sql(const comparison& item);
    std::string in_sql(const catalog_field& column, const comparison& item);

    const catalog& known_;
    statement& target_;
    plan_faults& plan_;
};

}  // namespace fencegate::pg
