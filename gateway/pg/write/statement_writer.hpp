#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/connection/sql_value.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace fencegate::pg {

/// Why a request does not become SQL.
struct plan_faults {
    std::vector<field_error> faults;
    bool unknown_name = false;  ///< A fault is a name that the catalog does not have: a newer catalog may.
};

/// How an answer is read from the result of a statement.
enum class answer_shape {
    affected,  ///< No rows; the count is the number of rows affected.
    rows,      ///< JSON array of the rows in pieces (split_into_pieces), with their count.
    value,     ///< JSON text or NULL in pieces.
    nothing,   ///< One row that says nothing (a function returning void).
};

/// The operator with a blank on each side; empty where it takes no single value (in, is, all_of, any_of).
std::string_view sql_operator(comparison_operator op);

/// Most bytes of the rows or the value of one read, or of one operation of a write.
inline constexpr std::size_t answer_bytes_max = 64 << 20;
/// Most bytes of it that come in one message of PostgreSQL, which libpq holds as a whole.
inline constexpr std::size_t answer_piece_bytes = 256 << 10;

/// The items of a set that a function returns, under the name `fencegate_item`, as the text of one JSON array.
inline const std::string items_array =
    "'[' || coalesce(string_agg(coalesce(to_json(fencegate_item)::text, 'null'), ','), '') || ']'";

/// The statement that gives the JSON text in the column `json` of `inner`, which has one row, in pieces of a bounded
/// size, each a row: the text's bytes, the piece, and the other `columns`. The piece is NULL, and there is one row,
/// where the text is NULL or longer than answer_bytes_max.
std::string split_into_pieces(const std::string& inner, const std::vector<std::string>& columns);

/// What the statements of writes and reads have in common: names looked up in the catalog, values bound, conditions.
///
/// Faults go to the plan; what is given back then is of no use, and writing goes on so that all are found.
class statement_writer {
  public:
    statement_writer(const catalog& known, statement& into, plan_faults& plan)
        : known_(known), into_(into), plan_(plan) {}

    void fault(std::string pointer, std::string detail);
    /// A fault that a newer catalog may not have.
    void unknown(std::string pointer, std::string detail);

    /// The table, if it is exposed for `operation`; else null.
    const exposed_table* find_table(const std::string& name, const char* operation, const std::string& pointer);
    const exposed_function* find_function(const std::string& name, const std::string& pointer);
    const catalog_field* find_column(const exposed_table& table, const std::string& table_name, const std::string& name,
                                     const std::string& pointer);

    /// The expression of a bound value. `literal`: PostgreSQL's own text, of whatever type.
    std::string bound(std::string_view type, const boost::json::value& value, const std::string& pointer,
                      bool literal = false);

    /// What was bound since the last call, and came from the request, stood at `pointer`.
    void came_from(const std::string& pointer) { into_.pointers.resize(into_.parameters.size(), pointer); }

    /// The conditions, all of which are to hold, over the table under the name `t`. Empty without any.
    std::string conditions(const exposed_table& table, const std::string& table_name,
                           const std::vector<comparison>& where);

    /// `"a" => $1::type, …`. Missing arguments are told of at `pointer`.
    std::string arguments(const exposed_function& function, const std::string& function_name,
                          const std::vector<assignment>& given, const std::string& pointer);

    /// `t."a", t."b" as "c"`; every column of the table where none is chosen. The names of unknown ones are faults of
    /// `select`.
    std::string columns(const exposed_table& table, const std::string& table_name,
                        const std::vector<selected_column>& select);

  private:
    std::string comparison_sql(const exposed_table& table, const std::string& table_name, const comparison& item);
    std::string column_sql(const catalog_field& column, const comparison& item);
    std::string is_sql(const comparison& item);
    std::string in_sql(const catalog_field& column, const comparison& item);

    const catalog& known_;
    statement& into_;
    plan_faults& plan_;
};

}  // namespace fencegate::pg
