#include <gateway/api/history/history.hpp>

#include <gateway/api/history/history_export.hpp>
#include <gateway/api/history/history_render.hpp>
#include <gateway/api/history/history_request.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/pg/database.hpp>
#include <gateway/runtime/rfc3339.hpp>

#include <map>

namespace fencegate::api {
namespace {

using boost::asio::awaitable;

std::string render_summary(const history_summary_query& query, const std::vector<history_count>& counts) {
    std::string text;
    http::object_writer out(text);
    out.text("from", runtime::to_rfc3339(query.from)).text("to", runtime::to_rfc3339(query.to));
    out.number("bucket_ms", query.bucket.count());
    std::map<std::string, std::int64_t> totals;
    out.key("buckets");
    text += '[';
    for (std::size_t i = 0; i < counts.size();) {
        const auto at = counts[i].bucket;
        if (i > 0) text += ',';
        http::object_writer bucket(text);
        bucket.text("at", runtime::to_rfc3339(at)).key("counts");
        http::object_writer of_events(text);
        for (; i < counts.size() && counts[i].bucket == at; ++i) {
            of_events.number(counts[i].event, counts[i].count);
            totals[counts[i].event] += counts[i].count;
        }
        of_events.end();
        bucket.end();
    }
    text += ']';
    out.key("totals");
    http::object_writer of_all(text);
    for (const auto& [event, count] : totals)
        of_all.number(event, count);
    of_all.end();
    out.end();
    return text;
}

}  // namespace

http::awaitable_response show_history(const gateway_services& services, http::request r) {
    const auto form = r.media_type;  // application/json, application/x-ndjson, text/csv
    auto query = parse_history_query(r.query, services.settings.locks.cell,
                                     form == 0 ? history_form::page : history_form::whole);
    if (!query) co_return query.error();
    const auto allowed = authorize_query(*r.rights, query->resource, query->resource_prefix);
    if (!allowed) co_return allowed.error();
    if (form != 0) {
        const auto format = form == 1 ? export_form::ndjson : export_form::csv;
        co_return co_await export_history(services, std::move(*query), format, std::move(r));
    }
    const bool ascending = query->ascending;
    const auto cost = is_search(*query) ? read_cost::expensive : read_cost::cheap;
    const auto page = co_await services.database.history().read(r.principal, cost, std::move(*query), r.deadline);
    if (!page) co_return page.error();
    co_return http::json_response(render_history(*page, ascending, services.settings.locks.cell));
}

http::awaitable_response summarize_history(const gateway_services& services, http::request r) {
    const auto query = parse_history_summary(r.query, std::chrono::system_clock::now());
    if (!query) co_return query.error();
    const auto allowed = authorize_query(*r.rights, std::nullopt, query->resource_prefix);
    if (!allowed) co_return allowed.error();
    const auto counts = co_await services.database.history().summarize(r.principal, *query, r.deadline);
    if (!counts) co_return counts.error();
    co_return http::json_response(render_summary(*query, *counts));
}

}  // namespace fencegate::api
