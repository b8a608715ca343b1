#include <gateway/api/history/history.hpp>

#include <gateway/api/history/history_render.hpp>
#include <gateway/api/history/history_request.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/pg/database.hpp>
#include <gateway/pg/history/history_reader.hpp>
#include <gateway/runtime/rfc3339.hpp>

#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>

namespace fencegate::api {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

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

enum class export_form { ndjson, csv };

/// The state of one export.
struct export_state {
    history_query query;
    history_page page;  ///< Read but not sent yet.
    std::size_t left;   ///< Maximum number of items still to send, including those of the page.
    export_form form;
    std::string principal;
    http::rights::time_point rights_until;  ///< No page is read after it.
};

std::string render_page(const export_state& state) {
    std::string text;
    text.reserve(400 * state.page.items.size());
    for (const history_item& item : state.page.items) {
        if (state.form == export_form::csv) {
            append_history_csv(text, item);
        } else {
            append_history_item(text, item);
            text += '\n';
        }
    }
    return text;
}

/// Sends all pages. While the caller reads, only the text of the current page is in memory.
awaitable<void> send_all(const gateway_services& services, std::shared_ptr<export_state> shared,
                         http::body_stream& out) {
    export_state& state = *shared;
    if (state.form == export_form::csv && !co_await out.send(history_csv_head())) co_return;
    for (;;) {
        std::string text = render_page(state);
        state.left -= state.page.items.size();
        const bool more = state.page.more && state.left > 0;
        if (more) state.query.after = position_of(state.page.items.back());
        state.page = {};
        if (!co_await out.send(text)) co_return;
        std::string().swap(text);  // An assignment of {} would keep the memory.
        if (!more) co_return;
        if ((co_await asio::this_coro::cancellation_state).cancelled() != asio::cancellation_type::none)
            throw std::runtime_error("the export is incomplete: the caller hung up or the gateway stops");
        if (http::rights::time_point::clock::now() >= state.rights_until)
            throw std::runtime_error("the export is incomplete: the caller's token or certificate has ended");
        state.query.limit = std::min(state.left, pg::history_page_max);
        auto page = co_await services.database.read_history(
            state.principal, read_cost::continued, state.query,
            std::chrono::steady_clock::now() + services.settings.http.request_timeout);
        if (!page) throw std::runtime_error(page.error().detail);
        state.page = std::move(*page);
    }
}

/// Streams all matching events, page by page as the caller reads them. At any time one page is in memory, and no
/// connection to PostgreSQL is held between two pages. Later events are not part of the answer. If a page cannot be
/// read or the gateway stops, the answer ends without its last chunk, so that the caller sees that it is incomplete.
http::awaitable_response export_history(const gateway_services& services, history_query query, export_form form,
                                        http::request r) {
    export_state state{std::move(query), {}, 0, form, r.principal, r.rights_until};
    state.left = state.query.limit;
    // Without an end an ascending export would also send new events, perhaps for ever.
    if (state.query.ascending && !state.query.to) state.query.to = std::chrono::system_clock::now();
    state.query.limit = std::min(state.left, pg::history_page_max);
    auto first = co_await services.database.read_history(r.principal, read_cost::expensive, state.query, r.deadline);
    if (!first) co_return first.error();
    state.page = std::move(*first);
    http::response out;
    out.content_type = form == export_form::csv ? "text/csv; charset=utf-8; header=present" : "application/x-ndjson";
    out.stream = [&services, shared = std::make_shared<export_state>(std::move(state))](http::body_stream& body) {
        return send_all(services, shared, body);
    };
    co_return out;
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
    const auto page = co_await services.database.read_history(r.principal, cost, std::move(*query), r.deadline);
    if (!page) co_return page.error();
    co_return http::json_response(render_history(*page, ascending, services.settings.locks.cell));
}

http::awaitable_response summarize_history(const gateway_services& services, http::request r) {
    const auto query = parse_history_summary(r.query, std::chrono::system_clock::now());
    if (!query) co_return query.error();
    const auto allowed = authorize_query(*r.rights, std::nullopt, query->resource_prefix);
    if (!allowed) co_return allowed.error();
    auto count = [query = *query](pg::session& session) { return pg::summarize_history(session, query); };
    const auto counts =
        co_await services.database.read(r.principal, read_cost::expensive, r.deadline, std::move(count));
    if (!counts) co_return counts.error();
    co_return http::json_response(render_summary(*query, *counts));
}

}  // namespace fencegate::api
