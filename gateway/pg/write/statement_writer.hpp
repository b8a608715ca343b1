#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/table_read.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/connection/sql_value.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::pg {

/// Why a request can't be turned into SQL.
struct statement_faults {
    std::vector<field_error> faults;
    bool unknown_name = false;  ///< A fault is a name that is not in the catalog; a newer catalog may have it.
    std::string_view code{};    ///< PostgREST's code of the first fault that has one.
};

// Codes of faults, as PostgREST numbers them. PostgREST's client shows them to its callers.
namespace fault_code {
inline constexpr std::string_view no_such_media_type = "PGRST107";
inline constexpr std::string_view no_relationship = "PGRST200";
inline constexpr std::string_view several_relationships = "PGRST201";
inline constexpr std::string_view unknown_function = "PGRST202";
inline constexpr std::string_view unknown_column = "PGRST204";
inline constexpr std::string_view unknown_table = "PGRST205";
}  // namespace fault_code

/// Returns the failure for faults: `code`, or not_acceptable if their code is that of a media type.
failure failure_for_faults(const statement_faults& faults, errc code, std::string detail);

/// How an answer is read from the result of a statement.
enum class answer_shape {
    affected,  ///< No rows; the count is the number of rows affected.
    rows,      ///< JSON array of the rows in pieces (split_into_pieces), with their count.
    value,     ///< JSON text or NULL in pieces.
    nothing,   ///< One row without columns (a function returning void).
};

/// Returns the operator with a blank on each side; empty where it takes no single value (in, is, all_of, any_of).
std::string_view sql_operator(comparison_operator op);

/// Returns an operator such as ` = `, with its schema where the column's type has operators of its own.
std::string operator_of(const catalog_field& column, std::string_view symbol);

/// Maximum size in bytes of the rows or the value of one read, or of one operation of a write.
inline constexpr std::size_t answer_bytes_max = 64 << 20;
/// Bytes of one piece of an answer: a message of PostgreSQL, which libpq holds as a whole.
inline constexpr std::size_t answer_piece_bytes = 256 << 10;

/// Returns a statement that splits the JSON text in the column `json` of `inner`, which has one row, into pieces of a
/// bounded size, each in a row: the number of the text's bytes, the piece, and the other `columns`. Where the text is
/// NULL or longer than answer_bytes_max there is one row, whose piece is NULL.
std::string split_into_pieces(const std::string& inner, const std::vector<std::string>& columns);

/// The common part of the statements of writes and reads: looks up names in the catalog, binds values and writes
/// conditions.
///
/// Faults are added to `faults`. What a function returns after a fault is meaningless; the caller continues, so that
/// all faults are found.
class statement_writer {
  public:
    statement_writer(const catalog& known, statement& target, statement_faults& faults)
        : known_(known), target_(target), faults_(faults) {}

    void add_fault(std::string pointer, std::string detail, std::string_view code = {});
    /// Adds a fault about a name that a newer catalog may have.
    void add_unknown_name(std::string pointer, std::string detail, std::string_view code = {});

    /// Returns the table if it is exposed for `operation`; else adds a fault and returns null.
    const exposed_table* find_table(const std::string& name, const char* operation, const std::string& pointer);
    const exposed_function* find_function(const std::string& name, const std::string& pointer);
    const catalog_field* find_column(const exposed_table& table, const std::string& table_name, const std::string& name,
                                     const std::string& pointer);

    /// Whether all columns of these names are exposed.
    static bool has_columns(const exposed_table& table, const std::vector<std::string>& names);

    /// Binds a value and returns its expression. `literal`: the value is text in PostgreSQL's notation, of any type.
    std::string bind_expression(std::string_view type, const boost::json::value& value, const std::string& pointer,
                                bool literal = false);

    /// Records that the parameters bound since the last call are at `pointer` in the request.
    void record_pointer(const std::string& pointer) { target_.pointers.resize(target_.parameters.size(), pointer); }

    statement& target() { return target_; }
    const catalog& known() const { return known_; }
    /// The name under which the statement has the table that conditions and columns belong to.
    const std::string& alias() const { return alias_; }
    void set_alias(std::string alias) { alias_ = std::move(alias); }
    /// Returns `t."name"`.
    std::string qualified(const std::string& column) const { return alias_ + "." + quote_identifier(column); }

    /// Returns the conditions joined by `and`; empty without conditions.
    std::string conditions(const exposed_table& table, const std::string& table_name,
                           const std::vector<comparison>& where);

    /// Returns `"a" => $1::type, …`. A missing argument is a fault at `pointer`.
    std::string arguments(const exposed_function& function, const std::string& function_name,
                          const std::vector<assignment>& given, const std::string& pointer);

  private:
    std::string comparison_sql(const exposed_table& table, const std::string& table_name, const comparison& item);
    std::string column_sql(const catalog_field& column, const comparison& item);
    std::string is_sql(const comparison& item);
    std::string in_sql(const catalog_field& column, const comparison& item);

    const catalog& known_;
    statement& target_;
    statement_faults& faults_;
    std::string alias_ = "t";
};

/// The expressions of a select list, and the names that they have in the answer.
struct column_list {
    std::string sql;
    std::vector<std::string> names;
};

/// The part of the statements of writes and reads that selects rows and gives them the form of the answer.
///
/// Limits: embedded tables nest as deep as the request's selections, which bounds them.
class row_writer : public statement_writer {
  public:
    using statement_writer::statement_writer;

    /// Returns `t."a", t."b" as "c"`; every column of the table where `select` is empty. An unknown column, and a name
    /// that occurs twice, are faults of `select`.
    column_list columns(const exposed_table& table, const std::string& table_name,
                        const std::vector<selected_column>& select);

    /// Returns the expression for a column's value as text. That of a type of an application is not cast: a cast may
    /// run code of anybody.
    std::string text_of(const catalog_field& column) const;

    /// Returns ` where …` with the conditions, and those of embedded tables that have to exist; empty without any.
    std::string where_clause(const exposed_table& table, const std::string& table_name, const row_selection& rows);

    /// Returns ` order by …`; empty without keys. A fault is one of the parameter `pointer`.
    std::string order_clause(const exposed_table& table, const std::string& table_name,
                             const std::vector<sort_key>& keys, const std::string& pointer);

    /// Returns ` limit … offset …`.
    std::string limit_clause(const row_selection& rows);

    /// Returns the expression for the text of one row of a subquery `row`, whose columns have the `names`, and the one
    /// that joins the texts of all.
    static std::string row_text(row_format format, const std::string& row, const std::vector<std::string>& names);
    std::string join_texts(row_format format, const std::string& text, const std::vector<std::string>& names);

    /// Returns a subquery with the column fencegate_item, the value of `item` for each row of the subquery `rows`. At
    /// the row with which the values are larger than an answer may be, `refusal` is evaluated, which raises 54000:
    /// otherwise many rows, or a few that are embedded over and over, would take gigabytes before the whole is found to
    /// be too large.
    static std::string limited_items(const std::string& item, const std::string& type, const std::string& rows,
                                     const std::string& refusal = too_long_text);

    /// A text of a gigabyte raises 54000 without being made. It is no constant, which would be evaluated beforehand.
    static constexpr const char* too_long_text = "repeat(' ', 1073741824 + (fencegate_bytes % 2)::integer)";
    /// Says how large the answer would be. For roles that write: others may not call it.
    static constexpr const char* refused_answer = "fencing.refuse_answer(fencegate_bytes::bigint)";

    /// Returns a statement with the columns rows, json and total for the set that `call` returns; it is evaluated once.
    /// Without `count` total is NULL.
    std::string function_rows(const exposed_function& function, const std::string& function_name,
                              const std::string& call, const row_selection& rows, row_format format, bool count,
                              const std::string& refusal = too_long_text);

    /// Returns a statement with the column json for the single value of `call`.
    static std::string value_sql(const std::string& call, row_format format);

    /// Adds a fault for each part of the selection, which only a set of rows can have.
    void refuse_selection(const std::string& function_name, const row_selection& rows, row_format format);

  private:
    struct joined_columns {
        std::string column;  ///< Of the embedded table.
        std::string equals;  ///< The operator of its type.
        std::string outer_column;
    };
    struct relationship {
        std::string foreign_key;
        bool to_one = false;
        std::vector<joined_columns> columns;
    };

    std::string filter(const exposed_table& table, const std::string& table_name, const row_selection& rows);
    std::vector<relationship> relationships(const exposed_table& outer, const exposed_table& inner,
                                            const std::string& hint) const;
    std::optional<relationship> find_relationship(const exposed_table& outer, const std::string& outer_name,
                                                  const exposed_table& inner, const selected_column& item);
    std::string embedded_sql(const exposed_table& outer, const std::string& outer_name, const selected_column& item);
    std::string exists_sql(const exposed_table& outer, const std::string& outer_name, const selected_column& item);
    /// Begins the subquery of an embedded table and returns its ` from … where …`; ends it with the outer alias.
    std::string embedded_source(const exposed_table& inner, const relationship& found, const selected_column& item);

    int embedded_count_ = 0;  ///< Gives each subquery a name of its own.
};

}  // namespace fencegate::pg
