#include <gateway/pg/write/row_writer.hpp>

#include <algorithm>

namespace fencegate::pg {

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
        } else if (find_column(table, table_name, item.column, "select")) {
            add(qualified(item.column), item.alias, item.alias == item.column);
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
