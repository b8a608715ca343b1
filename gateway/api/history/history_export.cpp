#include <gateway/api/history/history_export.hpp>

#include <gateway/api/history/history_cursor.hpp>
#include <gateway/api/history/history_render.hpp>
#include <gateway/pg/database.hpp>
#include <gateway/pg/history/history_reader.hpp>

#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <memory>
#include <stdexcept>

namespace fencegate::api {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

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
        auto page = co_await services.database.history().read(
            state.principal, read_cost::continued, state.query,
            std::chrono::steady_clock::now() + services.settings.http.request_timeout);
        if (!page) throw std::runtime_error(page.error().detail);
        state.page = std::move(*page);
    }
}

}  // namespace

http::awaitable_response export_history(const gateway_services& services, history_query query, export_form form,
                                        http::request r) {
    export_state state{std::move(query), {}, 0, form, r.principal, r.rights_until};
    state.left = state.query.limit;
    // Without an end an ascending export would also send new events, perhaps for ever.
    if (state.query.ascending && !state.query.to) state.query.to = std::chrono::system_clock::now();
    state.query.limit = std::min(state.left, pg::history_page_max);
    auto first = co_await services.database.history().read(r.principal, read_cost::expensive, state.query, r.deadline);
    if (!first) co_return first.error();
    state.page = std::move(*first);
    http::response out;
    out.content_type = form == export_form::csv ? "text/csv; charset=utf-8; header=present" : "application/x-ndjson";
    out.stream = [&services, shared = std::make_shared<export_state>(std::move(state))](http::body_stream& body) {
        return send_all(services, shared, body);
    };
    co_return out;
}

}  // namespace fencegate::api
