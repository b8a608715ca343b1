#pragma once

#include <gateway/domain/table_read.hpp>
#include <gateway/pg/write/statement_writer.hpp>

#include <optional>
#include <string>
#include <utility>
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

    /// Returns the expression for the text of all rows of a subquery `row`, whose columns have the `names`.
    std::string rows_text(row_format format, const std::string& row, const std::vector<std::string>& names);

    /// Returns a statement with the columns rows, json and total for the set that `call` returns; it is evaluated once.
    /// Without `count` total is NULL.
    std::string function_rows(const exposed_function& function, const std::string& function_name,
                              const std::string& call, const row_selection& rows, row_format format, bool count);

    /// Adds a fault for each part of the selection, which only a set of rows can have.
    void refuse_selection(const std::string& function_name, const row_selection& rows, row_format format);

  private:
    struct relationship {
        std::string foreign_key;
        bool to_one = false;
        std::vector<std::pair<std::string, std::string>> columns;  ///< Of the embedded table and of the outer one.
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
