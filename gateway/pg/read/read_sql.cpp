#include <gateway/pg/read/table_reader.hpp>
#include <gateway/pg/write/statement_writer.hpp>
#include <gateway/pg/write/write_sql.hpp>

#include <boost/json/parse.hpp>

#include <algorithm>

namespace fencegate::pg {
namespace {

/// Deepest JSON of a plan, which has two levels for each step: far more than the steps of a statement that PostgreSQL
/// plans in time.
constexpr std::size_t plan_depth_max = 1'000;
/// The most rows that an estimate counts, 2^53; the planner's own numbers go up to 1e100.
constexpr double rows_counted_max = 9007199254740992.0;

class read_writer : row_writer {
  public:
    read_writer(const catalog& known, read_statement& out, row_format format)
        : row_writer(known, out.sql, out), out_(out), format_(format) {}

    void operator()(const table_query& query) {
        const auto* table = find_table(query.table, "select", "table");
        if (!table) return;
        const auto list = columns(*table, query.table, query.select);
        const auto from = " from " + table->target + " as t" + where_clause(*table, query.table, query);
        const auto order = order_clause(*table, query.table, query.order, "order");
        const auto limit = limit_clause(query);
        const bool hidden = hides_rows(*table, query);
        const auto made = "(select " + list.sql + from + order + limit + ") as fencegate_row";
        const auto text = row_text(format_, "fencegate_row", list.names);
        out_.sql.sql = split_into_pieces(
            "select count(*) as rows, " + join_texts(format_, "fencegate_item", list.names) + " as json, " +
                total_sql(query, from, hidden) + " as total from " + limited_items(text, "text", made),
            {"rows", "total"});
        const bool planned = query.count == row_count::planned || query.count == row_count::estimated;
        if (planned && !hidden) estimate(*table, query);
    }

    void operator()(const function_query& query) {
        const auto* function = find_function(query.function, "function");
        if (!function) return;
        auto resolved = query;
        resolve_parameters(*function, resolved);
        const auto call = function->target + "(" + arguments(*function, query.function, resolved.args, "") + ")";
        out_.needs_fence = !function->changes_nothing;
        const bool selects = has_selection(resolved.rows, query.limit);
        if (!function->returns_set) {
            if (selects || format_ == row_format::csv) refuse_selection(query.function, resolved.rows, format_);
            read_value(*function, call);
        } else if (selects || query.count || format_ == row_format::csv) {
            out_.sql.sql = split_into_pieces(
                function_rows(*function, query.function, call, resolved.rows, format_, query.count), {"rows", "total"});
        } else {
            out_.sql.sql = split_into_pieces(
                "select count(*) as rows, " + join_texts(format_, "fencegate_item", {}) +
                    " as json, null::bigint as total from " +
                    limited_items(row_text(format_, "fencegate_item", {}), "text",
                                  "(select fencegate_item from " + call + " as fencegate_item limit " +
                                      out_.sql.bind(std::to_string(query.limit)) + "::bigint) as fencegate_item"),
                {"rows", "total"});
        }
    }

  private:
    /// Whether an estimate could tell of rows that the caller may not see: the planner's statistics are of all rows.
    bool hides_rows(const exposed_table& table, const row_selection& rows) const {
        return table.hides_rows || std::ranges::any_of(rows.select, [this](const selected_column& item) {
                   if (!item.embedded || !item.embedded->inner) return false;
                   const auto found = known().tables.find(item.column);
                   return found != known().tables.end() && hides_rows(found->second, item.embedded->rows);
               });
    }

    std::string total_sql(const table_query& query, const std::string& from, bool hidden) {
        if (query.count == row_count::none) return "null::bigint";
        if (query.count == row_count::exact || hidden) return "(select count(*)" + from + ")";
        if (query.count != row_count::estimated) return "null::bigint";
        return "(select count(*) from (select" + from + " limit " +
               out_.sql.bind(std::to_string(query.counted_max + 1)) + "::bigint) as fencegate_counted)";
    }

    /// The statement has parameters of its own, because PostgreSQL has to find the type of each in it.
    void estimate(const exposed_table& table, const table_query& query) {
        row_writer writer(known(), out_.estimate, out_);
        out_.estimate.sql = "explain (format json) select from " + table.target + " as t" +
                            writer.where_clause(table, query.table, query);
    }

    void read_value(const exposed_function& function, const std::string& call) {
        if (function.returns_void) {
            out_.shape = answer_shape::nothing;
            out_.sql.sql = "select from " + call;
            return;
        }
        out_.shape = answer_shape::value;
        out_.sql.sql = split_into_pieces(value_sql(call, format_), {});
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

    read_statement& out_;
    row_format format_;
};

}  // namespace

read_statement build_read(const catalog& known, const read_request& request) {
    read_statement out;
    read_writer writer(known, out, request.format);
    std::visit([&writer](const auto& query) { writer(query); }, request.query);
    if (out.sql.parameters.size() > parameters_max) out.faults.push_back({"query", "The request has too many values."});
    return out;
}

std::int64_t read_estimate(std::string_view json) {
    boost::json::parse_options options;
    options.max_depth = plan_depth_max;
    const auto parsed = boost::json::parse({json.data(), json.size()}, {}, options);
    const auto rows = parsed.as_array().at(0).at("Plan").at("Plan Rows").to_number<double>();
    return static_cast<std::int64_t>(std::clamp(rows, 0.0, rows_counted_max));
}

}  // namespace fencegate::pg
