#include <gateway/pg/connection/sql_value.hpp>
#include <gateway/pg/write/joined_update.hpp>
#include <gateway/pg/write/statement_writer.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

namespace fencegate::pg {
namespace {

/// Types whose values mean the same in an array as alone, and which have no length that would cut a value.
constexpr std::array<std::string_view, 12> plain_types{"text",
                                                       "integer",
                                                       "bigint",
                                                       "smallint",
                                                       "boolean",
                                                       "uuid",
                                                       "numeric",
                                                       "double precision",
                                                       "real",
                                                       "date",
                                                       "timestamp with time zone",
                                                       "timestamp without time zone"};
constexpr std::array<std::string_view, 6> number_types{"integer", "bigint",           "smallint",
                                                       "numeric", "double precision", "real"};

template <std::size_t n>
bool is_one_of(const std::array<std::string_view, n>& types, std::string_view type) {
    return std::find(types.begin(), types.end(), type) != types.end();
}

class builder {
  public:
    explicit builder(const exposed_table& table) : table_(table) {}

    /// Builds the statement. Binds the values in the order in which build_statements binds them.
    std::optional<joined_statement> build(const update_operation& op) {
        std::string sets;
        for (const auto& item : op.set)
            append_assignment(sets, item, false);
        for (const auto& item : op.add)
            append_assignment(sets, item, true);
        std::string where;
        for (const auto& item : op.where) {
            const auto* column = find(item.column);
            const std::string symbol(sql_operator(item.op));
            if (column == nullptr || symbol.empty() || item.negated || item.literal) return std::nullopt;
            where += "t." + quote_identifier(column->name) + symbol + bind_array(*column) + " and ";
        }
        if (!fits_ || sets.empty()) return std::nullopt;
        const auto has_resource = "(" + table_.shared_resource_expression + "\n) collate \"C\" = v.fencegate_resource";
        const auto resources = "$" + std::to_string(++count_) + "::text[]";
        joined_statement out;
        // The case expression raises the error for a row of another resource, after the conditions before it hold.
        out.sql = "update " + table_.target + " as t set " + sets + " from unnest(" + arrays_ + resources +
                  ") with ordinality as v (" + names_ + "fencegate_resource, fencegate_position) where " + where +
                  "case when " + has_resource +
                  " then true else 1 / (v.fencegate_position - v.fencegate_position) > 0 end returning "
                  "v.fencegate_position, " +
                  has_resource;
        out.recheck = {table_.target, table_.shared_resource_expression};
        out.parameters = count_ - 1;
        return out;
    }

  private:
    const catalog_field* find(const std::string& name) {
        const auto found = std::find_if(table_.columns.begin(), table_.columns.end(),
                                        [&](const auto& column) { return column.name == name; });
        return found == table_.columns.end() ? nullptr : &*found;
    }

    void append_assignment(std::string& sets, const assignment& item, bool sum) {
        const auto* column = find(item.name);
        if (column == nullptr || (sum && !is_one_of(number_types, column->type))) {
            fits_ = false;
            return;
        }
        fits_ = fits_ && !item.literal;
        const auto name = quote_identifier(column->name);
        if (!sets.empty()) sets += ", ";
        sets += name + " = " + (sum ? "t." + name + " + " : "") + bind_array(*column);
    }

    std::string bind_array(const catalog_field& column) {
        fits_ = fits_ && is_one_of(plain_types, column.type);
        const auto number = std::to_string(++count_);
        arrays_ += "$" + number + "::" + column.type + "[], ";
        names_ += "fencegate_" + number + ", ";
        return "v.fencegate_" + number;
    }

    const exposed_table& table_;
    std::string arrays_;
    std::string names_;
    std::size_t count_ = 0;
    bool fits_ = true;
};

void append_item(std::string& array, const std::optional<std::string>& item) {
    array += array.empty() ? '{' : ',';
    if (!item) {
        array += "NULL";
        return;
    }
    array += '"';
    for (const char c : *item) {
        if (c == '"' || c == '\\') array += '\\';
        array += c;
    }
    array += '"';
}

}  // namespace

std::optional<joined_statement> join_update(const catalog& known, const update_operation& op) {
    const auto found = known.tables.find(op.table);
    if (found == known.tables.end() || found->second.shared_resource_expression.empty()) return std::nullopt;
    return builder(found->second).build(op);
}

const std::string& recheck_sql() {
    static const std::string sql =
        "select fencing.shared_resource_expression($1::text::regclass) is not distinct from $2::text";
    return sql;
}

void joined_values::add(const compat::parameters& values, const std::string& resource) {
    for (std::size_t i = 0; i + 1 < columns_.size(); ++i)
        append_item(columns_[i], values[i]);
    append_item(columns_.back(), resource);
}

compat::parameters joined_values::take() {
    compat::parameters out;
    for (auto& column : columns_)
        out.emplace_back(std::move(column) + '}');
    return out;
}

joined_answer::joined_answer(const answer_rows& rows, std::size_t writes) : changed_(writes, 0) {
    constexpr int position = 0, has_resource = 1;  // the columns of joined_statement::sql
    for (int row = 0; row < rows.size(); ++row) {
        auto& count = changed_.at(std::strtoul(rows.text(row, position), nullptr, 10) - 1);
        if (rows.text(row, has_resource)[0] != 't') {
            count.reset();
        } else if (count) {
            ++*count;
        }
    }
}

bool unjoinable_updates::has(const std::string& sql) const {
    const std::lock_guard lock(mutex_);
    return sql_.contains(sql);
}

void unjoinable_updates::add(const std::string& sql) {
    const std::lock_guard lock(mutex_);
    if (sql_.size() >= count_max) sql_.clear();
    sql_.insert(sql);
}

}  // namespace fencegate::pg
