#include <gateway/api/history/history.hpp>

#include <gateway/api/history/history_render.hpp>
#include <gateway/api/history/history_request.hpp>
#include <gateway/api/leases/lease_access.hpp>
#include <gateway/audit/history_feed.hpp>
#include <gateway/pg/database.hpp>
#include <gateway/pg/history/history_reader.hpp>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <memory>

namespace fencegate::api {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

/// How often a stream checks whether there are new events; the check costs no query.
constexpr auto poll_interval = 50ms;
/// How long a stream without Last-Event-ID waits until the gateway knows the last id of the history.
constexpr auto start_timeout = 2'000ms;
/// Pause after a failed query.
constexpr auto retry_interval = 1'000ms;
/// Longest silence on a stream: proxies close connections that are silent for longer.
constexpr auto heartbeat_interval = 10s;

struct stream_state {
    history_query query;
    std::int64_t position;             ///< Every event up to this id was sent or is filtered out.
    std::shared_ptr<void> membership;  ///< The place among the streams of history_feed; releases it when destroyed.
    std::shared_ptr<void> places;      ///< Those that admit_stream() took.
    std::string principal;
    http::rights::time_point rights_until;  ///< The stream ends then.
};

/// Returns an event with an id and no data. It moves a browser's Last-Event-ID without an event for the page, so that
/// events that were filtered out are not read again.
std::string render_id_only(std::int64_t id, lockcore::cell_id cell) {
    return "id: " + lockcore::mark_cell(cell, std::to_string(id)) + "\n\n";
}

/// Waits for `time`. Out: false if the stream has to end.
awaitable<bool> pause(steady_clock::duration time) {
    asio::steady_timer timer(co_await asio::this_coro::executor, time);
    boost::system::error_code ended;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ended));
    co_return !ended && (co_await asio::this_coro::cancellation_state).cancelled() == asio::cancellation_type::none;
}

awaitable<void> follow(const gateway_services& services, stream_state state, http::body_stream& out) {
    const lockcore::cell_id cell = services.settings.locks.cell;
    if (!co_await out.send("retry: 1000\n" + render_id_only(state.position, cell))) co_return;
    auto last_sent = steady_clock::now();
    auto next_poll = poll_interval;
    std::int64_t settled_before = 0;
    while (co_await pause(next_poll) && http::rights::time_point::clock::now() < state.rights_until) {
        next_poll = poll_interval;
        const auto now = steady_clock::now();
        std::string text;
        const auto settled = services.feed.settled();
        if (settled) {
            // PostgreSQL was replaced by an older state, which gives ids to new events that others had before.
            if (*settled < settled_before) state.position = std::min(state.position, *settled);
            settled_before = *settled;
        }
        if (settled && *settled > state.position) {
            state.query.ids = {state.position, *settled};
            const auto page = co_await services.database.read_history(state.principal, read_cost::cheap, state.query,
                                                                      now + services.settings.http.request_timeout);
            if (!page) {
                next_poll = retry_interval;
            } else {
                for (const history_item& item : page->items)
                    append_history_event(text, item, cell);
                state.position = page->more ? page->items.back().id : page->read_to;
                if (state.position < *settled) next_poll = {};
            }
        }
        if (text.empty() && now - last_sent >= heartbeat_interval) text = ":\n" + render_id_only(state.position, cell);
        if (text.empty()) continue;
        if (!co_await out.send(text)) co_return;
        last_sent = now;
    }
}

}  // namespace

http::awaitable_response follow_history(const gateway_services& services, http::request r) {
    auto query = parse_history_query(r.query, services.settings.locks.cell, history_form::stream);
    if (!query) co_return query.error();
    const auto allowed = authorize_query(*r.rights, query->resource, query->resource_prefix);
    if (!allowed) co_return allowed.error();
    query->limit = pg::history_page_max;
    std::optional<std::int64_t> last;
    if (r.has_header("last-event-id")) {
        const auto id = parse_event_id(r.header("last-event-id"), services.settings.locks.cell);
        if (!id) co_return id.error();
        last = *id;
    }
    auto places = admit_stream(services.limiter, r, {limits::use::streams, limits::use::history_streams});
    if (!places) co_return places.error();
    stream_state state{std::move(*query), 0, nullptr, std::move(*places), r.principal, r.rights_until};
    state.membership = services.feed.add_follower();
    if (!state.membership) {
        failure f = make_failure(errc::too_many_requests, "Too many streams of the history are open at this gateway.");
        f.retry_after = 10s;
        co_return f;
    }
    auto settled = services.feed.settled();
    const auto give_up_at = steady_clock::now() + start_timeout;
    while (!last && !settled && steady_clock::now() < give_up_at) {
        if (!co_await pause(poll_interval)) break;
        settled = services.feed.settled();
    }
    if (!last && !settled) {
        failure f = make_failure(errc::storage_unavailable,
                                 "The gateway has not been able to read the history since it started.");
        f.retry_after = 1s;
        co_return f;
    }
    if (last && (!settled || *last > *settled)) {
        const auto tail =
            co_await services.database.read(std::string(), read_cost::cheap, r.deadline, pg::read_history_tail);
        if (!tail) co_return tail.error();
        if (*last > tail->last_id) {
            const failure f = invalid_field("Last-Event-ID", "is higher than the last id of the history");
            co_return f;
        }
    }
    state.position = last ? *last : *settled;
    http::response out;
    out.content_type = "text/event-stream";
    out.headers.emplace_back("X-Accel-Buffering", "no");
    out.stream = [&services, state = std::move(state)](http::body_stream& body) {
        return follow(services, state, body);
    };
    co_return out;
}

}  // namespace fencegate::api
