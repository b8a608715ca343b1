#include <gateway/pg/write/statement_writer.hpp>

#include <gateway/domain/exact_number.hpp>

#include <algorithm>

namespace fencegate::pg {
namespace {

bool is_group(const comparison& item) {
    return item.op == comparison_operator::all_of || item.op == comparison_operator::any_of;
}

}  // namespace

std::string split_into_pieces(const std::string& inner, const std::vector<std::string>& columns) {
    const auto fits = "octet_length(bytes) <= " + std::to_string(answer_bytes_max);
    const auto piece_bytes = std::to_string(answer_piece_bytes);
    std::string names, texts;
    for (const auto& column : columns) {
        names += column + ", ";
        texts += ", " + column + "::text";
    }
    // As bytes: a piece is cut from bytes without reading the bytes before it.
    const auto whole =
        "select " + names + "convert_to(json, 'UTF8') as bytes from (" + inner + ") as fencegate_text offset 0";
    const auto counted = "select " + names + "bytes, generate_series(0, case when " + fits +
                         " then greatest(octet_length(bytes) - 1, 0) / " + piece_bytes +
                         " else 0 end) as piece from (" + whole + ") as fencegate_answer";
    return "select octet_length(bytes)::text, case when " + fits + " then substring(bytes from 1 + piece * " +
           piece_bytes + " for " + piece_bytes + ") end" + texts + " from (" + counted + ") as fencegate_piece";
}

std::string_view sql_operator(comparison_operator op) {
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
        case comparison_operator::like:
            return " ~~ ";
        case comparison_operator::ilike:
            return " ~~* ";
        case comparison_operator::in:
        case comparison_operator::is:
        case comparison_operator::all_of:
        case comparison_operator::any_of:
            break;
    }
    return "";
}

std::string operator_of(const catalog_field& column, std::string_view symbol) {
    if (column.operators.empty()) return std::string(symbol);
    return " operator(" + column.operators + "." + std::string(symbol.substr(1, symbol.size() - 2)) + ") ";
}

failure failure_for_faults(const statement_faults& faults, errc code, std::string detail) {
    failure out =
        make_failure(faults.code == fault_code::no_such_media_type ? errc::not_acceptable : code, std::move(detail));
    out.errors = faults.faults;
    if (!faults.code.empty()) out.facts["code"] = faults.code;
    return out;
}

void statement_writer::add_fault(std::string pointer, std::string detail, std::string_view code) {
    if (faults_.code.empty()) faults_.code = code;
    const bool known = std::any_of(faults_.faults.begin(), faults_.faults.end(), [&](const auto& fault) {
        return fault.pointer == pointer && fault.detail == detail;
    });
    if (known || faults_.faults.size() >= field_errors_max) return;
    faults_.faults.push_back({std::move(pointer), std::move(detail)});
}

void statement_writer::add_unknown_name(std::string pointer, std::string detail, std::string_view code) {
    add_fault(std::move(pointer), std::move(detail), code);
    faults_.unknown_name = true;
}

const exposed_table* statement_writer::find_table(const std::string& name, const char* operation,
                                                  const std::string& pointer) {
    const auto found = known_.tables.find(name);
    if (found == known_.tables.end()) {
        add_unknown_name(pointer, "No table " + name + " is exposed.", fault_code::unknown_table);
        return nullptr;
    }
    if (!found->second.operations.contains(operation)) {
        add_unknown_name(pointer, "The table " + name + " is not exposed for " + operation + ".",
                         fault_code::unknown_table);
        return nullptr;
    }
    return &found->second;
}

const exposed_function* statement_writer::find_function(const std::string& name, const std::string& pointer) {
    const auto found = known_.functions.find(name);
    if (found != known_.functions.end()) return &found->second;
    add_unknown_name(pointer, "No function " + name + " is exposed.", fault_code::unknown_function);
    return nullptr;
}

const catalog_field* statement_writer::find_column(const exposed_table& table, const std::string& table_name,
                                                   const std::string& name, const std::string& pointer) {
    const auto found = std::find_if(table.columns.begin(), table.columns.end(),
                                    [&](const auto& column) { return column.name == name; });
    if (found != table.columns.end()) return &*found;
    add_unknown_name(pointer, "The table " + table_name + " has no column " + name + ".", fault_code::unknown_column);
    return nullptr;
}

bool statement_writer::has_columns(const exposed_table& table, const std::vector<std::string>& names) {
    return std::ranges::all_of(names, [&](const std::string& name) {
        return std::ranges::find(table.columns, name, &catalog_field::name) != table.columns.end();
    });
}

std::string statement_writer::bind_expression(std::string_view type, const boost::json::value& value,
                                              const std::string& pointer, bool literal) {
    value_result<std::string> expression =
        literal ? target_.bind(std::string(value.get_string())) : bind_value(target_, type, value);
    record_pointer(pointer);
    if (expression) return std::move(*expression);
    add_fault(pointer, expression.error().detail);
    return {};
}

std::string statement_writer::conditions(const exposed_table& table, const std::string& table_name,
                                         const std::vector<comparison>& where) {
    std::string out;
    for (const auto& item : where) {
        auto condition = comparison_sql(table, table_name, item);
        if (condition.empty()) continue;
        if (!out.empty()) out += " and ";
        out += condition;
    }
    return out;
}

std::string statement_writer::comparison_sql(const exposed_table& table, const std::string& table_name,
                                             const comparison& item) {
    std::string out;
    if (is_group(item)) {
        for (const auto& member : item.members) {
            if (!out.empty()) out += item.op == comparison_operator::all_of ? " and " : " or ";
            out += comparison_sql(table, table_name, member);
        }
        out = "(" + out + ")";
    } else {
        const auto* column = find_column(table, table_name, item.column, item.pointer);
        if (!column) return {};
        out = column_sql(*column, item);
    }
    return item.negated ? "(not " + out + ")" : out;
}

std::string statement_writer::column_sql(const catalog_field& column, const comparison& item) {
    if (item.op == comparison_operator::is) return qualified(column.name) + is_sql(item);
    if (item.op == comparison_operator::in) return in_sql(column, item);
    if (item.value.is_null()) {
        add_fault(item.pointer, "A comparison with null is never true; use {\"is\": null}.");
        return {};
    }
    return qualified(column.name) + operator_of(column, sql_operator(item.op)) +
           bind_expression(column.value_type(), item.value, item.pointer, item.literal);
}

std::string statement_writer::is_sql(const comparison& item) {
    if (item.value.is_null()) return " is null";
    if (item.value.is_bool()) return item.value.get_bool() ? " is true" : " is false";
    if (item.value.is_string() && item.value.get_string() == "unknown") return " is unknown";
    add_fault(item.pointer, "`is` takes null, true, false or \"unknown\".");
    return {};
}

std::string statement_writer::in_sql(const catalog_field& column, const comparison& item) {
    if (!item.value.is_array()) {
        add_fault(item.pointer, "`in` takes an array.");
        return {};
    }
    const auto& items = item.value.get_array();
    if (std::any_of(items.begin(), items.end(), [](const auto& value) { return value.is_null(); })) {
        add_fault(item.pointer, "A comparison with null is never true; leave null out of `in` and use {\"is\": null}.");
        return {};
    }
    if (items.empty()) return "false";
    const bool scalars =
        std::all_of(items.begin(), items.end(), [](const auto& v) { return !v.is_array() && !v.is_object(); });
    if (scalars && !is_json_type(column.value_type()) && !is_array_type(column.value_type())) {
        // One parameter for any number of values, so that the statement stays the same and its plan is kept.
        auto values = bind_list(target_, column.value_type(), items);
        record_pointer(item.pointer);
        if (values) return qualified(column.name) + operator_of(column, " = ") + "any (" + *values + ")";
        add_fault(item.pointer, values.error().detail);
        return {};
    }
    std::string list;
    for (const auto& value : items) {
        if (!list.empty()) list += ", ";
        list += bind_expression(column.value_type(), value, item.pointer, item.literal);
    }
    return qualified(column.name) + " in (" + list + ")";
}

std::string statement_writer::arguments(const exposed_function& function, const std::string& function_name,
                                        const std::vector<assignment>& given, const std::string& pointer) {
    std::string out;
    for (const auto& item : given) {
        const auto argument = std::find_if(function.arguments.begin(), function.arguments.end(),
                                           [&](const auto& a) { return a.name == item.name; });
        if (argument == function.arguments.end()) {
            add_unknown_name(item.pointer, "The function " + function_name + " has no argument " + item.name + ".",
                             fault_code::unknown_function);
            continue;
        }
        if (!out.empty()) out += ", ";
        const auto value = bind_expression(argument->type, item.value, item.pointer, item.literal);
        out += quote_identifier(argument->name) + " => " + value + "::" + cast_type(argument->type);
    }
    for (const auto& argument : function.arguments) {
        const bool has_value =
            std::any_of(given.begin(), given.end(), [&](const auto& a) { return a.name == argument.name; });
        if (!has_value && !argument.has_default) {
            add_unknown_name(pointer,
                             "The argument " + argument.name + " of the function " + function_name + " is missing.",
                             fault_code::unknown_function);
        }
    }
    return out;
}

std::string row_writer::text_of(const catalog_field& column) const {
    const auto value = qualified(column.name);
    if (column.value_type().find('.') == std::string::npos) return value + "::pg_catalog.text";
    return "case when " + value + " is distinct from null then format('%s', " + value + ") end";
}

column_list row_writer::columns(const exposed_table& table, const std::string& table_name,
                                const std::vector<selected_column>& select) {
    column_list out;
    const auto add = [&](const std::string& sql, const std::string& name, bool named) {
        if (std::ranges::find(out.names, name) != out.names.end())
            add_fault("select", "The name " + name + " occurs twice in the answer.");
        if (!out.sql.empty()) out.sql += ", ";
        out.sql += sql;
        if (!named) out.sql += " as " + quote_identifier(name);
        out.names.push_back(name);
    };
    const auto add_every = [&] {
        for (const auto& column : table.columns)
            add(qualified(column.name), column.name, true);
    };
    for (const auto& item : select) {
        if (item.embedded) {
            add(embedded_sql(table, table_name, item), item.alias, false);
        } else if (item.column.empty()) {
            add_every();
        } else if (const auto* column = find_column(table, table_name, item.column, "select")) {
            const auto value = item.as_text ? text_of(*column) : qualified(item.column);
            add(value, item.alias, item.alias == item.column && !item.as_text);
        }
    }
    if (select.empty()) add_every();
    return out;
}

std::string row_writer::filter(const exposed_table& table, const std::string& table_name, const row_selection& rows) {
    auto out = conditions(table, table_name, rows.where);
    for (const auto& item : rows.select) {
        if (!item.embedded || !item.embedded->inner) continue;
        if (!out.empty()) out += " and ";
        out += exists_sql(table, table_name, item);
    }
    return out;
}

std::string row_writer::where_clause(const exposed_table& table, const std::string& table_name,
                                     const row_selection& rows) {
    const auto condition = filter(table, table_name, rows);
    return condition.empty() ? "" : " where " + condition;
}

std::string row_writer::order_clause(const exposed_table& table, const std::string& table_name,
                                     const std::vector<sort_key>& keys, const std::string& pointer) {
    std::string out;
    for (const auto& key : keys) {
        const auto* column = find_column(table, table_name, key.column, pointer);
        if (!column) continue;
        out += (out.empty() ? " order by " : ", ") + qualified(column->name) + (key.descending ? " desc" : " asc");
        if (key.nulls_first) out += *key.nulls_first ? " nulls first" : " nulls last";
    }
    return out;
}

std::string row_writer::limit_clause(const row_selection& rows) {
    const auto limit = target().bind(std::to_string(rows.limit));
    return " limit " + limit + "::bigint offset " + target().bind(std::to_string(rows.offset)) + "::bigint";
}

namespace {

/// Returns the expression for one field of a line. `value` is a column, because it occurs twice.
std::string csv_field(const std::string& value) {
    return "coalesce((select case when field = '' or field ~ '[\",\\r\\n]' then '\"' || replace(field, '\"', "
           "'\"\"') || '\"' else field end from (select format('%s', " +
           value + ") as field where " + value + " is distinct from null) as fencegate_field), '')";
}

std::string csv_text(const std::string& text) {
    if (!text.empty() && text.find_first_of("\",\r\n") == std::string::npos) return text;
    std::string out = "\"";
    for (const char c : text)
        out.append(c == '"' ? 2 : 1, c);
    return out + '"';
}

}  // namespace

std::string row_writer::row_text(row_format format, const std::string& row, const std::vector<std::string>& names) {
    if (format != row_format::csv) {
        // json keeps the order of the columns and the digits of numbers, which jsonb and JSON readers would not.
        const auto object = "to_json(" + row + ")";
        const auto text = format == row_format::json ? object : "json_strip_nulls(" + object + ")";
        return "coalesce(" + text + "::text, 'null')";
    }
    std::string line;
    for (const auto& name : names)
        line += (line.empty() ? "chr(10) || " : " || ',' || ") + csv_field(row + "." + quote_identifier(name));
    return line;
}

std::string row_writer::join_texts(row_format format, const std::string& text, const std::vector<std::string>& names) {
    if (format != row_format::csv) return "'[' || coalesce(string_agg(" + text + ", ','), '') || ']'";
    std::string header;
    for (const auto& name : names)
        header += (&name == names.data() ? "" : ",") + csv_text(name);
    return target().bind(std::move(header)) + "::text || coalesce(string_agg(" + text + ", ''), '')";
}

std::string row_writer::limited_items(const std::string& item, const std::string& type, const std::string& rows,
                                      const std::string& refusal) {
    const auto items = "(select " + item + " as fencegate_item from " + rows + " offset 0) as fencegate_items";
    const auto sizes =
        "(select fencegate_item, sum(pg_column_size(fencegate_item)) over (rows unbounded preceding) as "
        "fencegate_bytes from " +
        items + ") as fencegate_sizes";
    return "(select case when fencegate_bytes > " + std::to_string(answer_bytes_max) + " then " + refusal +
           "::" + type + " else fencegate_item end as fencegate_item from " + sizes + ") as fencegate_row";
}

std::string row_writer::function_rows(const exposed_function& function, const std::string& function_name,
                                      const std::string& call, const row_selection& rows, row_format format, bool count,
                                      const std::string& refusal) {
    exposed_table result;
    result.columns = function.columns;
    if (!function.returns_set || (format == row_format::csv && result.columns.empty()))
        refuse_selection(function_name, rows, format);
    const bool single_values = !function.returns_row && rows.select.empty() && format != row_format::csv;
    const auto value = result.columns.empty() ? std::string("fencegate_value") : result.columns.front().name;
    const auto where = where_clause(result, function_name, rows);
    const auto list = single_values ? column_list{qualified(value) + " as fencegate_item", {}}
                                    : columns(result, function_name, rows.select);
    const auto set = std::string("select ") + (result.columns.empty() ? "t as fencegate_value" : "*") + " from " +
                     call + " as t" + where;
    const auto order = order_clause(result, function_name, rows.order, "order");
    return "with fencegate_set as materialized (" + set + ") select count(*) as rows, " +
           join_texts(format, "fencegate_item", list.names) + " as json, " +
           (count ? "(select count(*) from fencegate_set)" : "null::bigint") + " as total from " +
           limited_items(
               row_text(format, "fencegate_item", list.names), "text",
               "(select " + list.sql + " from fencegate_set as t" + order + limit_clause(rows) + ") as fencegate_item",
               refusal);
}

std::string row_writer::value_sql(const std::string& call, row_format format) {
    const auto value = "to_json(" + call + ")";
    const auto text = format == row_format::json ? value : "json_strip_nulls(" + value + ")";
    // offset 0 keeps PostgreSQL from copying the call to each place that names its value.
    return "select " + text + "::text as json offset 0";
}

void row_writer::refuse_selection(const std::string& function_name, const row_selection& rows, row_format format) {
    const auto detail = "The function " + function_name + " does not return a set of rows with columns.";
    if (format == row_format::csv) add_fault("Accept", detail, fault_code::no_such_media_type);
    if (!rows.select.empty()) add_fault("select", detail);
    for (const auto& condition : rows.where)
        add_fault(condition.pointer, detail);
    if (!rows.order.empty()) add_fault("order", detail);
    if (rows.offset > 0) add_fault("offset", detail);
    if (rows.limit < 1) add_fault("limit", detail);
}

}  // namespace fencegate::pg
