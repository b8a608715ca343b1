#include <gateway/pg/write/statement_writer.hpp>

#include <algorithm>

namespace fencegate::pg {
namespace {

/// Whether the hint names the foreign key or one of its columns.
bool is_meant(const catalog_foreign_key& key, const std::string& hint) {
    return hint.empty() || key.name == hint || std::ranges::find(key.columns, hint) != key.columns.end();
}

}  // namespace

std::vector<row_writer::relationship> row_writer::relationships(const exposed_table& outer, const exposed_table& inner,
                                                                const std::string& hint) const {
    std::vector<relationship> out;
    const auto add = [&](const catalog_foreign_key& key, bool to_one, const std::vector<std::string>& inner_columns,
                         const std::vector<std::string>& outer_columns) {
        auto& found = out.emplace_back();
        found.foreign_key = key.name;
        found.to_one = to_one;
        for (std::size_t i = 0; i < inner_columns.size(); ++i) {
            const auto& own = *std::ranges::find(inner.columns, inner_columns[i], &catalog_field::name);
            found.columns.push_back({own.name, operator_of(own, " = "), outer_columns[i]});
        }
    };
    const auto is_usable = [&hint](const catalog_foreign_key& key, const exposed_table& from, const exposed_table& to) {
        return key.target == to.target && is_meant(key, hint) && has_columns(from, key.columns) &&
               has_columns(to, key.target_columns);
    };
    for (const auto& key : outer.foreign_keys) {
        if (is_usable(key, outer, inner)) add(key, true, key.target_columns, key.columns);
    }
    for (const auto& key : inner.foreign_keys) {
        // A column of a foreign key inside one table leads to the referenced row.
        const bool to_referenced = inner.target == outer.target && !hint.empty() && hint != key.name;
        if (is_usable(key, inner, outer) && !to_referenced) add(key, key.is_unique, key.columns, key.target_columns);
    }
    return out;
}

std::optional<row_writer::relationship> row_writer::find_relationship(const exposed_table& outer,
                                                                      const std::string& outer_name,
                                                                      const exposed_table& inner,
                                                                      const selected_column& item) {
    auto found = relationships(outer, inner, item.embedded->hint);
    const auto pair = outer_name + " and " + item.column;
    if (found.empty()) {
        const auto& hint = item.embedded->hint;
        add_unknown_name("select",
                         "No foreign key " + (hint.empty() ? "" : hint + " ") +
                             "whose columns are exposed connects the tables " + pair + ".",
                         fault_code::no_relationship);
        return std::nullopt;
    }
    if (found.size() > 1) {
        std::string choices;
        for (const auto& each : found)
            choices += (choices.empty() ? "" : ", ") + item.column + "!" + each.foreign_key;
        add_fault("select", "Several foreign keys connect the tables " + pair + "; name one of them: " + choices + ".",
                  fault_code::several_relationships);
        return std::nullopt;
    }
    return std::move(found.front());
}

std::string row_writer::embedded_source(const exposed_table& inner, const relationship& found,
                                        const selected_column& item) {
    const auto outer_alias = alias();
    set_alias("t" + std::to_string(++embedded_count_));
    std::string join;
    for (const auto& pair : found.columns) {
        if (!join.empty()) join += " and ";
        join += qualified(pair.column) + pair.equals + outer_alias + "." + quote_identifier(pair.outer_column);
    }
    const auto condition = filter(inner, item.column, item.embedded->rows);
    return " from " + inner.target + " as " + alias() + " where " + join +
           (condition.empty() ? "" : " and " + condition);
}

std::string row_writer::embedded_sql(const exposed_table& outer, const std::string& outer_name,
                                     const selected_column& item) {
    const auto* inner = find_table(item.column, "select", "select");
    if (!inner) return "null";
    const auto found = find_relationship(outer, outer_name, *inner, item);
    if (!found) return "null";
    const auto outer_alias = alias();
    const auto& rows = item.embedded->rows;
    const auto source = embedded_source(*inner, *found, item);
    const auto list = columns(*inner, item.column, rows.select);
    const auto order = order_clause(*inner, item.column, rows.order, item.embedded->pointer_prefix + "order");
    const auto made = "(select " + list.sql + source + order + limit_clause(rows) + ") as fencegate_row";
    set_alias(outer_alias);
    const std::string object = "row_to_json(fencegate_row)";
    if (found->to_one) return "(select " + object + " from " + made + ")";
    const bool nested = has_embedded(rows);
    return "(select coalesce(json_agg(" + (nested ? "fencegate_item" : object) + "), '[]'::json) from " +
           (nested ? limited_items(object, "json", made) : made) + ")";
}

std::string row_writer::exists_sql(const exposed_table& outer, const std::string& outer_name,
                                   const selected_column& item) {
    const auto* inner = find_table(item.column, "select", "select");
    const auto found = inner ? find_relationship(outer, outer_name, *inner, item) : std::nullopt;
    if (!found) return "false";
    const auto outer_alias = alias();
    const auto source = embedded_source(*inner, *found, item);
    set_alias(outer_alias);
    return "exists (select" + source + ")";
}

}  // namespace fencegate::pg
