#include <gateway/pg/write_sql.hpp>

#include <algorithm>

namespace fencegate::pg {
namespace {

const char* sql_operator(comparison_operator op) {
    switch (op) {
        case comparison_operator::eq:
            return " = ";
        case comparison_operator::neq:
            return " <> ";
        case comparison_operator::lt:
            return " < ";
        case comparison_operator::lte:
            return " <= ";
        case comparison_operator::gt:
            return " > ";
        case comparison_operator::gte:
            return " >= ";
        case comparison_operator::in:
        case comparison_operator::is:
            break;
    }
    return "";
}

/// What is added to a column: for times a text is a span and a number added to a date is days; else the column's own
/// type.
std::string addend_type(std::string_view type, const boost::json::value& value) {
    const bool is_date = type == "date";
    if (value.is_string() && (is_date || type.starts_with("time"))) return "interval";
    if (is_date) return "integer";
    return cast_type(type);
}

/// Plans one operation; faults go to the plan.
class planner {
  public:
    planner(const catalog& known, write_plan& plan, std::size_t index, bool return_rows)
        : known_(known), plan_(plan), pointer_("/operations/" + std::to_string(index)), return_rows_(return_rows) {}

    void operator()(const update_operation& op) {
        const auto* table = find_table(op.table, "update");
        if (!table) return;
        std::string sets;
        const auto separate = [&sets] {
            if (!sets.empty()) sets += ", ";
        };
        for (const auto& item : op.set) {
            const auto* column = find_column(*table, op.table, item.name, item.pointer);
            if (!column) continue;
            const auto value = bound(column->type, item.value, item.pointer);
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
        finish_change(*table);
    }

    void operator()(const insert_operation& op) {
        const auto* table = find_table(op.table, "insert");
        if (!table) return;
        std::string names;
        std::string values;
        for (const auto& item : op.values) {
            const auto* column = find_column(*table, op.table, item.name, item.pointer);
            if (!column) continue;
            if (!names.empty()) {
                names += ", ";
                values += ", ";
            }
            names += quote_identifier(column->name);
            values += bound(column->type, item.value, item.pointer);
        }
        out_.sql.sql = "insert into " + table->target + " as t ";
        out_.sql.sql += names.empty() ? "default values" : "(" + names + ") values (" + values + ")";
        out_.expect_rows = op.expect_rows;
        finish_change(*table);
    }

    void operator()(const delete_operation& op) {
        const auto* table = find_table(op.table, "delete");
        if (!table) return;
        out_.sql.sql = "delete from " + table->target + " as t where " + condition(*table, op.table, op.where);
        out_.expect_rows = op.expect_rows;
        finish_change(*table);
    }

    void operator()(const call_operation& op) {
        const auto found = known_.functions.find(op.function);
        if (found == known_.functions.end()) {
            unknown(pointer_ + "/call", "No function " + op.function + " is exposed.");
            return;
        }
        const auto& function = found->second;
        std::string arguments;
        for (const auto& item : op.args) {
            const auto argument = std::find_if(function.arguments.begin(), function.arguments.end(),
                                               [&](const auto& a) { return a.name == item.name; });
            if (argument == function.arguments.end()) {
                unknown(item.pointer, "The function " + op.function + " has no argument " + item.name + ".");
                continue;
            }
            if (!arguments.empty()) arguments += ", ";
            const auto value = bound(argument->type, item.value, item.pointer);
            arguments += quote_identifier(argument->name) + " => " + value + "::" + cast_type(argument->type);
        }
        for (const auto& argument : function.arguments) {
            const bool given =
                std::any_of(op.args.begin(), op.args.end(), [&](const auto& a) { return a.name == argument.name; });
            if (!given && !argument.has_default) {
                unknown(pointer_ + "/args",
                        "The argument " + argument.name + " of the function " + op.function + " is missing.");
            }
        }
        finish_call(function, function.target + "(" + arguments + ")");
    }

    void take() {
        if (out_.sql.parameters.size() > parameters_max) fault(pointer_, "The operation has too many values.");
        plan_.operations.push_back(std::move(out_));
    }

  private:
    void fault(std::string pointer, std::string detail) {
        plan_.faults.push_back({std::move(pointer), std::move(detail)});
    }

    void unknown(std::string pointer, std::string detail) {
        fault(std::move(pointer), std::move(detail));
        plan_.unknown_name = true;
    }

    const exposed_table* find_table(const std::string& name, const char* operation) {
        const auto pointer = pointer_ + "/" + operation;
        const auto found = known_.tables.find(name);
        if (found == known_.tables.end()) {
            unknown(pointer, "No table " + name + " is exposed.");
            return nullptr;
        }
        if (!found->second.operations.contains(operation)) {
            unknown(pointer, "The table " + name + " is not exposed for " + operation + ".");
            return nullptr;
        }
        return &found->second;
    }

    const catalog_field* find_column(const exposed_table& table, const std::string& table_name, const std::string& name,
                                     const std::string& pointer) {
        const auto found = std::find_if(table.columns.begin(), table.columns.end(),
                                        [&](const auto& column) { return column.name == name; });
        if (found != table.columns.end()) return &*found;
        unknown(pointer, "The table " + table_name + " has no column " + name + ".");
        return nullptr;
    }

    std::string bound(std::string_view type, const boost::json::value& value, const std::string& pointer) {
        auto expression = bind_value(out_.sql, type, value);
        if (expression) return std::move(*expression);
        fault(pointer, expression.error().detail);
        return {};
    }

    std::string sum(const catalog_field& column, const assignment& item) {
        if (!item.value.is_number() && !item.value.is_string()) {
            fault(item.pointer, "`add` takes a number, or a text for types that JSON has no number for.");
            return {};
        }
        return "t." + quote_identifier(column.name) + " + " + bound(column.type, item.value, item.pointer) +
               "::" + addend_type(column.type, item.value);
    }

    std::string condition(const exposed_table& table, const std::string& table_name,
                          const std::vector<comparison>& where) {
        if (where.empty()) fault(pointer_ + "/where", "A change without `where` would touch every row and is refused.");
        std::string out;
        for (const auto& item : where) {
            const auto* column = find_column(table, table_name, item.column, item.pointer);
            if (!column) continue;
            if (!out.empty()) out += " and ";
            out += comparison_sql("t." + quote_identifier(column->name), column->type, item);
        }
        return out;
    }

    std::string comparison_sql(const std::string& column, const std::string& type, const comparison& item) {
        if (item.op == comparison_operator::is) return column + is_sql(item);
        if (item.op == comparison_operator::in) return in_sql(column, type, item);
        if (item.value.is_null()) {
            fault(item.pointer, "A comparison with null is never true; use {\"is\": null}.");
            return {};
        }
        return column + sql_operator(item.op) + bound(type, item.value, item.pointer);
    }

    std::string is_sql(const comparison& item) {
        if (item.value.is_null()) return " is null";
        if (item.value.is_bool()) return item.value.get_bool() ? " is true" : " is false";
        if (item.value.is_string() && item.value.get_string() == "unknown") return " is unknown";
        fault(item.pointer, "`is` takes null, true, false or \"unknown\".");
        return {};
    }

    std::string in_sql(const std::string& column, const std::string& type, const comparison& item) {
        if (!item.value.is_array()) {
            fault(item.pointer, "`in` takes an array.");
            return {};
        }
        const auto& items = item.value.get_array();
        if (std::any_of(items.begin(), items.end(), [](const auto& value) { return value.is_null(); })) {
            fault(item.pointer, "A comparison with null is never true; leave null out of `in` and use {\"is\": null}.");
            return {};
        }
        if (items.empty()) return "false";
        const bool scalars =
            std::all_of(items.begin(), items.end(), [](const auto& v) { return !v.is_array() && !v.is_object(); });
        if (scalars && !is_json_type(type) && !is_array_type(type)) {
            // One parameter whatever the number of values, so that the statement stays the same and its plan is kept.
            return column + " = any (" + bound(type + "[]", item.value, item.pointer) + ")";
        }
        std::string list;
        for (const auto& value : items) {
            if (!list.empty()) list += ", ";
            list += bound(type, value, item.pointer);
        }
        return column + " in (" + list + ")";
    }

    void finish_change(const exposed_table& table) {
        if (!return_rows_) return;
        std::string columns;
        for (const auto& column : table.columns) {
            if (!columns.empty()) columns += ", ";
            columns += "t." + quote_identifier(column.name);
        }
        // json keeps the order of the columns and the digits of numbers, which jsonb and JSON readers would not.
        out_.sql.sql = "with fencegate_changed as (" + out_.sql.sql + " returning " + columns +
                       ") select count(*), '[' || coalesce(string_agg(row_to_json(fencegate_changed)::text, ','), '') "
                       "|| ']' from fencegate_changed";
        out_.shape = answer_shape::rows;
    }

    void finish_call(const exposed_function& function, const std::string& call) {
        if (function.returns_void) {
            out_.shape = answer_shape::nothing;
            out_.sql.sql = "select from " + call;
        } else if (function.returns_set) {
            out_.shape = answer_shape::value;
            out_.sql.sql =
                "select '[' || coalesce(string_agg(coalesce(to_json(fencegate_item)::text, 'null'), ','), '') || ']' "
                "from " +
                call + " as fencegate_item";
        } else {
            out_.shape = answer_shape::value;
            out_.sql.sql = "select to_json(" + call + ")::text";
        }
    }

    const catalog& known_;
    write_plan& plan_;
    std::string pointer_;
    bool return_rows_;
    planned_operation out_;
};

}  // namespace

write_plan plan_write(const catalog& known, const std::vector<operation>& operations, bool return_rows) {
    write_plan plan;
    plan.operations.reserve(operations.size());
    for (std::size_t i = 0; i < operations.size(); ++i) {
        planner one(known, plan, i, return_rows);
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
