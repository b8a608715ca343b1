#include <gateway/pg/read/read_sql.hpp>
#include <gateway/pg/write/write_sql.hpp>

namespace fencegate::pg {
namespace {

class planner : statement_writer {
  public:
    planner(const catalog& known, read_plan& plan) : statement_writer(known, plan.sql, plan), plan_(plan) {}

    void operator()(const table_query& query) {
        const auto* table = find_table(query.table, "select", "table");
        if (!table) return;
        const auto list = columns(*table, query.table, query.select);
        auto where = conditions(*table, query.table, query.where);
        if (!where.empty()) where = " where " + where;
        const auto from = " from " + table->target + " as t" + where;
        const auto total = query.count ? "(select count(*)" + from + ")" : std::string("null::bigint");
        const auto order = order_by(*table, query);
        const auto limit = plan_.sql.bind(std::to_string(query.limit));
        const auto offset = plan_.sql.bind(std::to_string(query.offset));
        // json keeps the order of the columns and the digits of numbers, which jsonb and JSON readers would not.
        plan_.sql.sql = split_into_pieces(
            "select count(*) as rows, '[' || coalesce(string_agg(row_to_json(fencegate_row)::text, ','), '') || ']' as "
            "json, " +
                total + " as total from (select " + list + from + order + " limit " + limit + "::bigint offset " +
                offset + "::bigint) as fencegate_row",
            {"rows", "total"});
    }

    void operator()(const function_query& query) {
        const auto* function = find_function(query.function, "function");
        if (!function) return;
        const auto call = function->target + "(" + arguments(*function, query.function, query.args, "") + ")";
        plan_.needs_fence = !function->changes_nothing;
        if (function->returns_void) {
            plan_.shape = answer_shape::nothing;
            plan_.sql.sql = "select from " + call;
        } else if (function->returns_set) {
            plan_.sql.sql =
                split_into_pieces("select count(*) as rows, " + items_array +
                                      " as json, null::bigint as total from (select fencegate_item from " + call +
                                      " as fencegate_item limit " + plan_.sql.bind(std::to_string(query.limit)) +
                                      "::bigint) as fencegate_item",
                                  {"rows", "total"});
        } else {
            plan_.shape = answer_shape::value;
            // offset 0 keeps PostgreSQL from copying the call to each place that names its value.
            plan_.sql.sql = split_into_pieces("select to_json(" + call + ")::text as json offset 0", {});
        }
    }

  private:
    std::string order_by(const exposed_table& table, const table_query& query) {
        std::string out;
        for (const auto& key : query.order) {
            const auto* column = find_column(table, query.table, key.column, "order");
            if (!column) continue;
            out += out.empty() ? " order by t." : ", t.";
            out += quote_identifier(column->name) + (key.descending ? " desc" : " asc");
            if (key.nulls_first) out += *key.nulls_first ? " nulls first" : " nulls last";
        }
        return out;
    }

    read_plan& plan_;
};

}  // namespace

read_plan plan_read(const catalog& known, const read_request& request) {
    read_plan plan;
    planner statement_planner(known, plan);
    std::visit([&statement_planner](const auto& query) { statement_planner(query); }, request.query);
    if (plan.sql.parameters.size() > parameters_max)
        plan.faults.push_back({"query", "The request has too many values."});
    return plan;
}

}  // namespace fencegate::pg
