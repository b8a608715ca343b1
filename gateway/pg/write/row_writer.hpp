#pragma once

#include <gateway/domain/table_read.hpp>
#include <gateway/pg/write/statement_writer.hpp>

#include <optional>
#include <string>
#include <vector>

namespace fencegate::pg {

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

    /// Returns ` where …` with the conditions, and those of embedded tables that have to exist; empty without any.
    std::string where_clause(const exposed_table& table, const std::string& table_name, const row_selection& rows);

    /// Returns ` order by …`; empty without keys. A fault is one of the parameter `pointer`.
    std::string order_clause(const exposed_table& table, const std::string& table_name,
                             const std::vector<sort_key>& keys, const std::string& pointer);

    /// Returns ` limit … offset …`.
    std::string limit_clause(const row_selection& rows);

    /// Returns the expression for the text of one row of a subquery `row`, whose columns have the `names`, and the one that
    /// joins the texts of all.
    static std::string row_text(row_format format, const std::string& row, const std::vector<std::string>& names);
    std::string join_texts(row_format format, const std::string& text, const std::vector<std::string>& names);

    /// Returns a subquery with the column fencegate_item, the value of `item` for each row of the subquery `rows`. At the
    /// row with which the values are larger than an answer may be, `refusal` is evaluated, which raises 54000: otherwise
    /// many rows, or a few that are embedded over and over, would take gigabytes before the whole is found to be too large.
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
