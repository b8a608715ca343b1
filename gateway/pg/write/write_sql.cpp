#include <gateway/domain/exact_number.hpp>
#include <gateway/pg/write/write_sql.hpp>

#include <algorithm>

namespace fencegate::pg {
namespace {

/// What is added to a column: for times a text is a span and a number added to a date is days; else the column's own
/// type.
std::string addend_type(std::string_view type, const boost::json::value& value) {
    const bool is_date = type == "date";
    if (is_json_string(value) && (is_date || type.starts_with("time"))) return "interval";
    if (is_date) return "integer";
    return cast_type(type);
}

/// Plans one operation; faults go to the plan.
class planner : statement_writer {
  public:
    planner(const catalog& known, write_plan& plan, std::size_t index, const returned_rows& returned)
        : statement_writer(known, out_.sql, plan),
          plan_(plan),
          pointer_("/operations/" + std::to_string(index)),
          returned_(returned) {
        out_.pointer = pointer_;
    }

    void operator()(const update_operation& op) {
        const auto* table = find_table(op.table, "update", pointer_ + "/update");
        if (!table || !readable(op.table, "/update")) return;
        std::string sets;
        const auto separate = [&sets] {
            if (!sets.empty()) sets += ", ";
        };
        for (const auto& item : op.set) {
            const auto* column = find_column(*table, op.table, item.name, item.pointer);
            if (!column) continue;
            const auto value = bound(column->value_type(), item.value, item.pointer, item.literal);
            separate();
            sets += quote_identifier(column->name) + " = " + value;
        }
        for (const auto& item : op.add) {
            const auto* column = find_column(*table, op.table, item.name, item.pointer);
            if (!column) continue;
            separate();
            sets += quote_identifier(column->name) + " = " + sum(*column, item);
        }
        if (sets.empty() && op.set.empty() && op.add.empty()) fault(pointer_, "An update needs `set` or `add`.");
        const auto where = condition(*table, op.table, op.where);
        out_.sql.sql = "update " + table->target + " as t set " + sets + " where " + where;
        out_.expect_rows = op.expect_rows;
        finish_change(*table, op.table);
    }

    void operator()(const insert_operation& op) {
        const auto* table = find_table(op.table, "insert", pointer_ + "/insert");
        const bool reads = returned_.wanted || (op.on_conflict && !op.on_conflict->columns.empty());
        if (!table || (reads && !readable(op.table, "/insert"))) return;
        out_.sql.sql = "insert into " + table->target + " as t ";
        out_.sql.sql += op.rows.empty() ? one_row(*table, op) : many_rows(*table, op);
        if (op.on_conflict) {
            out_.sql.sql += on_conflict(*table, op);
            out_.on_conflict = op.on_conflict->pointer;
        }
        out_.expect_rows = op.expect_rows;
        finish_change(*table, op.table);
    }

    void operator()(const delete_operation& op) {
        const auto* table = find_table(op.table, "delete", pointer_ + "/delete");
        if (!table || !readable(op.table, "/delete")) return;
        out_.sql.sql = "delete from " + table->target + " as t where " + condition(*table, op.table, op.where);
        out_.expect_rows = op.expect_rows;
        finish_change(*table, op.table);
    }

    void operator()(const call_operation& op) {
        const auto* function = find_function(op.function, pointer_ + "/call");
        if (!function) return;
        const auto list = arguments(*function, op.function, op.args, pointer_ + "/args");
        finish_call(*function, function->target + "(" + list + ")");
    }

    void take() {
        if (out_.sql.parameters.size() > parameters_max) fault(pointer_, "The operation has too many values.");
        plan_.operations.push_back(std::move(out_));
    }

  private:
    /// Conditions, rows in the answer and the columns of a conflict take the right to select.
    bool readable(const std::string& table, const char* verb) {
        return find_table(table, "select", pointer_ + verb) != nullptr;
    }

    std::string one_row(const exposed_table& table, const insert_operation& op) {
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
            values += bound(column->value_type(), item.value, item.pointer, item.literal);
        }
        return names.empty() ? "default values" : "(" + names + ") values (" + values + ")";
    }

    /// One parameter whatever the number of rows, so that the statement stays the same and its plan is kept. The types
    /// are the columns' own: PostgreSQL reads each value as an assignment would, and cuts nothing off.
    std::string many_rows(const exposed_table& table, const insert_operation& op) {
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
        if (columns.empty()) fault(pointer_ + "/values", "Rows of nothing but defaults are inserted one by one.");
        const auto rows = out_.sql.bind(rows_text(columns, op.rows));
        out_.pointer = pointer_ + "/values";
        came_from(out_.pointer);
        return "(" + names + ") select " + values + " from json_to_recordset(" + rows + "::json) as r(" + types + ")";
    }

    static std::string rows_text(const std::vector<const catalog_field*>& columns, const boost::json::array& rows) {
        std::string out = "[";
        for (const auto& row : rows) {
            out += &row == rows.data() ? "{" : ",{";
            for (const auto* column : columns) {
                if (column != columns.front()) out += ',';
                out += json_text(boost::json::value(column->name)) + ':';
                out += json_text(row.get_object().at(column->name), column->value_type());
            }
            out += '}';
        }
        return out + ']';
    }

    std::string on_conflict(const exposed_table& table, const insert_operation& op) {
        std::string unique;
        for (const auto& name : op.on_conflict->columns) {
            if (!find_column(table, op.table, name, op.on_conflict->pointer)) continue;
            if (!unique.empty()) unique += ", ";
            unique += quote_identifier(name);
        }
        const auto out = " on conflict" + (unique.empty() ? "" : " (" + unique + ")");
        std::string sets;
        for (const auto& item : op.values) {
            if (std::ranges::find(op.on_conflict->columns, item.name) != op.on_conflict->columns.end()) continue;
            if (!sets.empty()) sets += ", ";
            const auto name = quote_identifier(item.name);
            sets += name;
            sets += " = excluded.";
            sets += name;
        }
        if (!op.on_conflict->replace || sets.empty()) return out + " do nothing";
        if (!table.operations.contains("update")) {
            unknown(op.on_conflict->pointer, "The table " + op.table + " is not exposed for update.");
        }
        return out + " do update set " + sets;
    }

    std::string sum(const catalog_field& column, const assignment& item) {
        if (!item.value.is_number() && !item.value.is_string()) {
            fault(item.pointer, "`add` takes a number, or a text for types that JSON has no number for.");
            return {};
        }
        return "t." + quote_identifier(column.name) + " + " + bound(column.value_type(), item.value, item.pointer) +
               "::" + addend_type(column.value_type(), item.value);
    }

    std::string condition(const exposed_table& table, const std::string& table_name,
                          const std::vector<comparison>& where) {
        if (where.empty()) fault(pointer_ + "/where", "A change without `where` would touch every row and is refused.");
        return conditions(table, table_name, where);
    }

    void finish_change(const exposed_table& table, const std::string& table_name) {
        if (!returned_.wanted) return;
        // json keeps the order of the columns and the digits of numbers, which jsonb and JSON readers would not.
        out_.sql.sql =
            "with fencegate_changed as (" + out_.sql.sql + " returning " +
            columns(table, table_name, returned_.select) + ") " +
            split_into_pieces(limited("rows, ",
                                      "select count(*) as rows, '[' || "
                                      "coalesce(string_agg(row_to_json(fencegate_changed)::text, ','), '') || ']' "
                                      "as json from fencegate_changed"),
                              {"rows"});
        out_.shape = answer_shape::rows;
    }

    void finish_call(const exposed_function& function, const std::string& call) {
        if (function.returns_void) {
            out_.shape = answer_shape::nothing;
            out_.sql.sql = "select from " + call;
        } else {
            out_.shape = answer_shape::value;
            out_.sql.sql = split_into_pieces(
                limited("", function.returns_set
                                ? "select " + items_array + " as json from " + call + " as fencegate_item"
                                : "select to_json(" + call + ")::text as json offset 0"),
                {});
        }
    }

    /// An answer that is too large undoes the write.
    static std::string limited(const std::string& before, const std::string& inner) {
        return "select " + before + "case when octet_length(json) > " + std::to_string(answer_bytes_max) +
               " then fencing.refuse_answer(octet_length(json)) else json end as json from (" + inner +
               ") as fencegate_answer";
    }

    planned_operation out_;
    write_plan& plan_;
    std::string pointer_;
    const returned_rows& returned_;
};

}  // namespace

write_plan plan_write(const catalog& known, const std::vector<operation>& operations, const returned_rows& returned) {
    write_plan plan;
    plan.operations.reserve(operations.size());
    for (std::size_t i = 0; i < operations.size(); ++i) {
        planner one(known, plan, i, returned);
        std::visit([&one](const auto& op) { one(op); }, operations[i]);
        one.take();
    }
    return plan;
}

failure plan_failure(const write_plan& plan) {
    failure out = make_failure(errc::unprocessable, "The operations do not fit what is exposed; nothing was changed.");
    out.errors = plan.faults;
    return out;
}

}  // namespace fencegate::pg
