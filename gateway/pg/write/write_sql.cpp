#include <gateway/domain/exact_number.hpp>
#include <gateway/pg/write/statement_writer.hpp>
#include <gateway/pg/write/write_sql.hpp>

#include <algorithm>
#include <array>

namespace fencegate::pg {
namespace {

/// Returns the type of the value that is added to a column: interval for a text added to a date or time, integer (days)
/// for a number added to a date, else the column's type.
std::string addend_type(std::string_view type, const boost::json::value& value) {
    const bool is_date = type == "date";
    if (is_json_string(value) && (is_date || type.starts_with("time"))) return "interval";
    if (is_date) return "integer";
    return cast_type(type);
}

/// Whether PostgreSQL has no operator + for the type. Types that an application or an extension makes may have one.
bool has_no_addition(std::string_view type) {
    constexpr std::array<std::string_view, 9> types{"text",  "character", "boolean", "uuid", "json",
                                                    "jsonb", "bytea",     "xml",     "name"};
    return std::ranges::find(types, type.substr(0, type.find_first_of(" ("))) != types.end() && !type.ends_with(']');
}

/// Writes the statement of one operation.
class operation_writer : row_writer {
  public:
    operation_writer(const catalog& known, operation_statement& out, statement_faults& faults, std::size_t index,
                     const returned_rows& returned)
        : row_writer(known, out.sql, faults),
          out_(out),
          pointer_("/operations/" + std::to_string(index)),
          returned_(returned) {
        out_.pointer = pointer_;
    }

    void operator()(const update_operation& op) {
        const auto* table = find_table(op.table, "update", pointer_ + "/update");
        if (!table || !require_selectable(op.table, "/update")) return;
        std::string sets;
        const auto separate = [&sets] {
            if (!sets.empty()) sets += ", ";
        };
        for (const auto& item : op.set) {
            const auto* column = find_column(*table, op.table, item.name, item.pointer);
            if (!column) continue;
            const auto value = bind_expression(column->value_type(), item.value, item.pointer, item.literal);
            separate();
            sets += quote_identifier(column->name) + " = " + value;
        }
        for (const auto& item : op.add) {
            const auto* column = find_column(*table, op.table, item.name, item.pointer);
            if (!column) continue;
            separate();
            sets += quote_identifier(column->name) + " = " + addition_sql(*column, item);
        }
        if (sets.empty() && op.set.empty() && op.add.empty()) add_fault(pointer_, "An update needs `set` or `add`.");
        const auto where = condition_sql(*table, op.table, op.where);
        out_.sql.sql = "update " + table->target + " as t set " + sets + " where " + where;
        out_.expect_rows = op.expect_rows;
        out_.rows_max = op.rows_max;
        finish_change(*table, op.table);
    }

    void operator()(const insert_operation& op) {
        const auto* table = find_table(op.table, "insert", pointer_ + "/insert");
        const bool reads =
            returned_.wanted || (op.on_conflict && (op.on_conflict->replace || !op.on_conflict->columns.empty()));
        if (!table || (reads && !require_selectable(op.table, "/insert"))) return;
        out_.sql.sql = "insert into " + table->target + " as t ";
        if (op.rows.empty()) {
            out_.sql.sql += row_values_sql(*table, op);
        } else {
            out_.sql.sql += has_defaults(op) ? row_list_sql(*table, op) : row_set_sql(*table, op);
        }
        if (op.on_conflict) {
            out_.sql.sql += conflict_sql(*table, op);
            out_.on_conflict = op.on_conflict->pointer;
        }
        out_.expect_rows = op.expect_rows;
        out_.rows_max = op.rows_max;
        finish_change(*table, op.table);
        // It may have changed no row because of another resource's row, which the transaction may roll back.
        if (op.on_conflict) out_.changes_rows_only = false;
    }

    void operator()(const delete_operation& op) {
        const auto* table = find_table(op.table, "delete", pointer_ + "/delete");
        if (!table || !require_selectable(op.table, "/delete")) return;
        out_.sql.sql = "delete from " + table->target + " as t where " + condition_sql(*table, op.table, op.where);
        out_.expect_rows = op.expect_rows;
        out_.rows_max = op.rows_max;
        finish_change(*table, op.table);
    }

    void operator()(const call_operation& op) {
        const auto* function = find_function(op.function, pointer_ + "/call");
        if (!function) return;
        const auto list = arguments(*function, op.function, op.args, pointer_ + "/args");
        finish_call(*function, function->target + "(" + list + ")", op);
    }

    void check_size() {
        if (out_.sql.parameters.size() > parameters_max) add_fault(pointer_, "The operation has too many values.");
    }

  private:
    /// Adds a fault if the table is not exposed for select, which conditions, returned rows and conflict columns
    /// require. Out: whether it is.
    bool require_selectable(const std::string& table, const char* verb) {
        return find_table(table, "select", pointer_ + verb) != nullptr;
    }

    std::string row_values_sql(const exposed_table& table, const insert_operation& op) {
        std::string names;
        std::string values;
        for (const auto& item : op.values) {
            const auto* column = find_column(table, op.table, item.name, item.pointer);
            if (!column) continue;
            if (!names.empty()) {
                names += ", ";
                values += ", ";
            }
            names += quote_identifier(column->name);
            values += bind_expression(column->value_type(), item.value, item.pointer, item.literal);
        }
        return names.empty() ? "default values" : "(" + names + ") values (" + values + ")";
    }

    /// Whether a row lacks a column, and is to have its default.
    static bool has_defaults(const insert_operation& op) {
        return op.missing_default && std::ranges::any_of(op.rows, [&op](const auto& row) {
                   return std::ranges::any_of(
                       op.values, [&row](const auto& item) { return !row.get_object().contains(item.name); });
               });
    }

    std::string row_list_sql(const exposed_table& table, const insert_operation& op) {
        std::vector<const catalog_field*> columns;
        std::string names;
        for (const auto& item : op.values) {
            const auto* column = find_column(table, op.table, item.name, item.pointer);
            if (!column) continue;
            if (!columns.empty()) names += ", ";
            names += quote_identifier(column->name);
            columns.push_back(column);
        }
        std::string rows;
        for (std::size_t i = 0; i < op.rows.size(); ++i) {
            rows += i == 0 ? "(" : ", (";
            for (const auto* column : columns) {
                if (column != columns.front()) rows += ", ";
                const auto* value = op.rows[i].get_object().if_contains(column->name);
                rows += value ? bind_expression(column->value_type(), *value, pointer_ + "/values") : "default";
            }
            rows += ")";
        }
        return "(" + names + ") values " + rows;
    }

    /// Uses one parameter for any number of rows, so that the statement stays the same and its plan is kept. The types
    /// are the columns' own: PostgreSQL reads each value as in an assignment, and cuts nothing.
    std::string row_set_sql(const exposed_table& table, const insert_operation& op) {
        std::vector<const catalog_field*> columns;
        std::string names;
        std::string values;
        std::string types;
        for (const auto& item : op.values) {
            const auto* column = find_column(table, op.table, item.name, item.pointer);
            if (!column) continue;
            if (!columns.empty()) {
                names += ", ";
                values += ", ";
                types += ", ";
            }
            columns.push_back(column);
            const auto name = quote_identifier(column->name);
            names += name;
            values += "r." + name;
            types += name + " " + column->type;
        }
        if (columns.empty()) add_fault(pointer_ + "/values", "Rows of nothing but defaults are inserted one by one.");
        const auto rows = out_.sql.bind(recordset_text(columns, op.rows));
        out_.pointer = pointer_ + "/values";
        record_pointer(out_.pointer);
        return "(" + names + ") select " + values + " from json_to_recordset(" + rows + "::json) as r(" + types + ")";
    }

    static std::string recordset_text(const std::vector<const catalog_field*>& columns,
                                      const boost::json::array& rows) {
        std::string out = "[";
        for (const auto& row : rows) {
            out += &row == rows.data() ? "{" : ",{";
            for (const auto* column : columns) {
                if (column != columns.front()) out += ',';
                out += json_text(boost::json::value(column->name)) + ':';
                const auto* value = row.get_object().if_contains(column->name);
                out += value ? json_text(*value, column->value_type()) : "null";
            }
            out += '}';
        }
        return out + ']';
    }

    std::string conflict_sql(const exposed_table& table, const insert_operation& op) {
        const auto& rule = *op.on_conflict;
        const bool by_key = rule.replace && rule.columns.empty();
        if (by_key && (table.primary_key.empty() || !has_columns(table, table.primary_key))) {
            add_unknown_name(rule.pointer, "The table " + op.table +
                                               " has no primary key whose columns are exposed; name the columns of a "
                                               "unique index.");
            return {};
        }
        const auto& decisive = by_key ? table.primary_key : rule.columns;
        std::string unique;
        for (const auto& name : decisive) {
            if (!find_column(table, op.table, name, rule.pointer)) continue;
            if (!unique.empty()) unique += ", ";
            unique += quote_identifier(name);
        }
        const auto out = " on conflict" + (unique.empty() ? "" : " (" + unique + ")");
        std::string sets;
        for (const auto& item : op.values) {
            if (std::ranges::find(decisive, item.name) != decisive.end()) continue;
            if (!sets.empty()) sets += ", ";
            const auto name = quote_identifier(item.name);
            sets += name;
            sets += " = excluded.";
            sets += name;
        }
        if (!rule.replace || sets.empty()) return out + " do nothing";
        if (!table.operations.contains("update"))
            add_unknown_name(rule.pointer, "The table " + op.table + " is not exposed for update.");
        return out + " do update set " + sets;
    }

    std::string addition_sql(const catalog_field& column, const assignment& item) {
        if (!item.value.is_number() && !item.value.is_string()) {
            add_fault(item.pointer, "`add` takes a number, or a text for types that JSON has no number for.");
            return {};
        }
        if (has_no_addition(column.value_type())) {
            add_fault(item.pointer,
                      "`add` needs a column of numbers, dates, times or intervals, and this one is of type " +
                          column.value_type() + "; use `set`.");
            return {};
        }
        return "t." + quote_identifier(column.name) + " + " +
               bind_expression(column.value_type(), item.value, item.pointer) +
               "::" + addend_type(column.value_type(), item.value);
    }

    std::string condition_sql(const exposed_table& table, const std::string& table_name,
                              const std::vector<comparison>& where) {
        if (where.empty())
            add_fault(pointer_ + "/where", "A change without `where` would touch every row and is refused.");
        return conditions(table, table_name, where);
    }

    void finish_change(const exposed_table& table, const std::string& table_name) {
        out_.changes_rows_only = !table.shared_resource_expression.empty();
        if (!returned_.wanted) return;
        const auto list = columns(table, table_name, returned_.select);
        out_.sql.sql =
            "with fencegate_changed as (" + out_.sql.sql + " returning " + list.sql + ") " +
            split_into_pieces(
                limit_answer_size(
                    "rows, ", "select count(*) as rows, " + join_texts(returned_.format, "fencegate_item", list.names) +
                                  " as json from " +
                                  limited_items(row_text(returned_.format, "fencegate_changed", list.names), "text",
                                                "fencegate_changed", refused_answer)),
                {"rows"});
        out_.shape = answer_shape::rows;
    }

    void finish_call(const exposed_function& function, const std::string& call, const call_operation& op) {
        if (op.rows && function.returns_set) {
            out_.shape = answer_shape::rows;
            out_.expect_rows = op.expect_rows;
            out_.rows_max = op.rows_max;
            const auto rows =
                function_rows(function, op.function, call, *op.rows, returned_.format, true, refused_answer);
            out_.sql.sql = split_into_pieces(limit_answer_size("rows, total, ", rows), {"rows", "total"});
            return;
        }
        if (op.rows) refuse_selection(op.function, *op.rows, returned_.format);
        if (op.rows_max)
            add_fault("Prefer", "max-affected needs a function that returns a set; " + op.function + " does not.");
        if (function.returns_void) {
            out_.shape = answer_shape::nothing;
            out_.sql.sql = "select from " + call;
        } else {
            out_.shape = answer_shape::value;
            out_.sql.sql = split_into_pieces(
                limit_answer_size("", function.returns_set
                                          ? "select " + join_texts(returned_.format, "fencegate_item", {}) +
                                                " as json from " +
                                                limited_items(row_text(returned_.format, "fencegate_item", {}), "text",
                                                              call + " as fencegate_item", refused_answer)
                                          : value_sql(call, returned_.format)),
                {});
        }
    }

    /// Wraps the statement so that an answer that is too large raises an error, which undoes the write.
    static std::string limit_answer_size(const std::string& before, const std::string& inner) {
        return "select " + before + "case when octet_length(json) > " + std::to_string(answer_bytes_max) +
               " then fencing.refuse_answer(octet_length(json)) else json end as json from (" + inner +
               ") as fencegate_answer";
    }

    operation_statement& out_;
    std::string pointer_;
    const returned_rows& returned_;
};

}  // namespace

write_statements build_statements(const catalog& known, const std::vector<operation>& operations,
                                  const returned_rows& returned) {
    write_statements out;
    out.operations.resize(operations.size());
    for (std::size_t i = 0; i < operations.size(); ++i) {
        operation_writer writer(known, out.operations[i], out, i, returned);
        std::visit([&writer](const auto& op) { writer(op); }, operations[i]);
        writer.check_size();
    }
    return out;
}

failure refusal_of(const statement_faults& faults) {
    return failure_for_faults(faults, errc::unprocessable,
                              "The operations do not fit what is exposed; nothing was changed.");
}

}  // namespace fencegate::pg
