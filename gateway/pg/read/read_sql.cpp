#include <gateway/pg/read/read_sql.hpp>
#include <gateway/pg/write/row_writer.hpp>
#include <gateway/pg/write/write_sql.hpp>

#include <boost/json/parse.hpp>

#include <algorithm>

namespace fencegate::pg {
namespace {

class planner : row_writer {
  public:
    planner(const catalog& known, read_plan& plan, row_format format)
        : row_writer(known, plan.sql, plan), plan_(plan), format_(format) {}

    void operator()(const table_query& query) {
        const auto* table = find_table(query.table, "select", "table");
        if (!table) return;
        const auto list = columns(*table, query.table, query.select);
        const auto from = " from " + table->target + " as t" + where_clause(*table, query.table, query);
        const auto order = order_clause(*table, query.table, query.order, "order");
        const auto limit = limit_clause(query);
        plan_.sql.sql =
            split_into_pieces("select count(*) as rows, " + rows_text(format_, "fencegate_row", list.names) +
                                  " as json, " + total_sql(query, from) + " as total from (select " + list.sql + from +
                                  order + limit + ") as fencegate_row",
                              {"rows", "total"});
        if (query.count == row_count::planned || query.count == row_count::estimated) estimate(*table, query);
    }

    void operator()(const function_query& query) {
        const auto* function = find_function(query.function, "function");
        if (!function) return;
        auto resolved = query;
        resolve_parameters(*function, resolved);
        const auto call = function->target + "(" + arguments(*function, query.function, resolved.args, "") + ")";
        plan_.needs_fence = !function->changes_nothing;
        const bool selects = has_selection(resolved.rows, query.limit);
        if (!function->returns_set) {
            if (selects || format_ == row_format::csv) refuse_selection(query.function, resolved.rows, format_);
            read_value(*function, call);
        } else if (selects || query.count || format_ == row_format::csv) {
            plan_.sql.sql = split_into_pieces(
                function_rows(*function, query.function, call, resolved.rows, format_, query.count), {"rows", "total"});
        } else {
            plan_.sql.sql =
                split_into_pieces("select count(*) as rows, " + rows_text(format_, "fencegate_item", {}) +
                                      " as json, null::bigint as total from (select fencegate_item from " + call +
                                      " as fencegate_item limit " + plan_.sql.bind(std::to_string(query.limit)) +
                                      "::bigint) as fencegate_item",
                                  {"rows", "total"});
        }
    }

  private:
    std::string total_sql(const table_query& query, const std::string& from) {
        if (query.count == row_count::exact) return "(select count(*)" + from + ")";
        if (query.count != row_count::estimated) return "null::bigint";
        return "(select count(*) from (select" + from + " limit " +
               plan_.sql.bind(std::to_string(query.counted_max + 1)) + "::bigint) as fencegate_counted)";
    }

    /// The statement has parameters of its own, because PostgreSQL has to find the type of each in it.
    void estimate(const exposed_table& table, const table_query& query) {
        row_writer writer(known(), plan_.estimate, plan_);
        plan_.estimate.sql = "explain (format json) select from " + table.target + " as t" +
                             writer.where_clause(table, query.table, query);
    }

    void read_value(const exposed_function& function, const std::string& call) {
        if (function.returns_void) {
            plan_.shape = answer_shape::nothing;
            plan_.sql.sql = "select from " + call;
            return;
        }
        plan_.shape = answer_shape::value;
        const auto value = "to_json(" + call + ")";
        const auto text = format_ == row_format::json ? value : "json_strip_nulls(" + value + ")";
        // offset 0 keeps PostgreSQL from copying the call to each place that names its value.
        plan_.sql.sql = split_into_pieces("select " + text + "::text as json offset 0", {});
    }

    /// Moves the parameters that name an argument from the selection to the arguments.
    void resolve_parameters(const exposed_function& function, function_query& query) {
        for (const auto& given : query.parameters) {
            const bool is_argument =
                std::ranges::find(function.arguments, given.name, &catalog_field::name) != function.arguments.end();
            if (!is_argument) {
                if (given.fault)
                    add_unknown_name(given.name,
                                     "The function " + query.function + " has no argument " + given.name +
                                         "; as a part of what it returns, this parameter " + *given.fault + ".",
                                     fault_code::unknown_function);
                continue;
            }
            if (std::ranges::find(query.args, given.name, &assignment::name) != query.args.end()) {
                add_fault(given.name, "is given more than once");
                continue;
            }
            query.args.push_back({given.name, boost::json::value(given.text), given.name, true});
            std::erase_if(query.rows.where, [&](const auto& condition) { return condition.pointer == given.name; });
            if (given.name == "select") query.rows.select.clear();
            if (given.name == "order") query.rows.order.clear();
            if (given.name == "limit") query.rows.limit = query.limit;
            if (given.name == "offset") query.rows.offset = 0;
        }
    }

    read_plan& plan_;
    row_format format_;
};

}  // namespace

read_plan plan_read(const catalog& known, const read_request& request) {
    read_plan plan;
    planner statement_planner(known, plan, request.format);
    std::visit([&statement_planner](const auto& query) { statement_planner(query); }, request.query);
    if (plan.sql.parameters.size() > parameters_max)
        plan.faults.push_back({"query", "The request has too many values."});
    return plan;
}

std::int64_t read_estimate(std::string_view json) {
    const auto parsed = boost::json::parse({json.data(), json.size()});
    return static_cast<std::int64_t>(parsed.as_array().at(0).at("Plan").at("Plan Rows").to_number<double>());
}

}  // namespace fencegate::pg
