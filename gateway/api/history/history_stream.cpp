#include <gateway/api/history/history_stream.hpp>

#include <gateway/api/history/history_render.hpp>
#include <gateway/api/history/history_request.hpp>
#include <gateway/audit/history_feed.hpp>
#include <gateway/http/codec/problem.hpp>
#include <gateway/pg/history/history_executor.hpp>
#include <gateway/pg/history/history_reader.hpp>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <charconv>

namespace fencegate::api {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

/// How often a stream looks whether there is more to read; it costs no query.
constexpr auto look_interval = 50ms;
/// How long the first to follow waits for a gateway that has just started to know how far the history goes.
constexpr auto start_patience = 2'000ms;
/// After a query that failed.
constexpr auto retry_interval = 1'000ms;
/// Proxies close what is silent for longer.
constexpr auto heartbeat_interval = 10s;

struct stream_state {
    history_query query;
    std::int64_t position;        ///< Everything up to this id was sent, or is not wanted.
    std::shared_ptr<void> place;  ///< Among the followers.
    std::string principal;
};

/// An id without data moves a browser's Last-Event-ID and shows nothing: what was filtered out need not be read again.
std::string id_alone(std::int64_t id) {
    return "id: " + std::to_string(id) + "\n\n";
}

/// False: the stream is to end.
awaitable<bool> pause(steady_clock::duration time) {
    asio::steady_timer timer(co_await asio::this_coro::executor, time);
    boost::system::error_code ended;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ended));
    co_return !ended && (co_await asio::this_coro::cancellation_state).cancelled() == asio::cancellation_type::none;
}

awaitable<void> follow(services with, stream_state state, http::body_stream& out) {
    if (!co_await out.send("retry: 1000\n" + id_alone(state.position))) co_return;
    auto spoken = steady_clock::now();
    auto next_look = look_interval;
    while (co_await pause(next_look)) {
        next_look = look_interval;
        const auto now = steady_clock::now();
        std::string text;
        const auto settled = with.feed.settled();
        if (settled && *settled > state.position) {
            state.query.ids = {state.position, *settled};
            const auto page = co_await with.history.read(state.principal, read_cost::cheap, state.query,
                                                         now + with.settings.http.request_timeout);
            if (!page) {
                next_look = retry_interval;
            } else {
                for (const history_item& item : page->items)
                    append_history_event(text, item);
                state.position = page->more ? page->items.back().id : *settled;
                if (page->more) next_look = {};
            }
        }
        if (text.empty() && now - spoken >= heartbeat_interval) text = ":\n" + id_alone(state.position);
        if (text.empty()) continue;
        if (!co_await out.send(text)) co_return;
        spoken = now;
    }
}

}  // namespace

awaitable<http::response> follow_history(services with, http::request r) {
    auto query = parse_history_query(r.query, history_form::stream);
    if (!query) co_return http::problem_response(query.error(), r.request_id);
    query->limit = pg::history_page_max;
    std::optional<std::int64_t> last;
    if (r.has_header("last-event-id")) {
        const auto text = r.header("last-event-id");
        const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), last.emplace());
        if (fault != std::errc{} || end != text.data() + text.size() || *last < 0) {
            const failure f = invalid_field("Last-Event-ID", "has to be the id of an event of the history");
            co_return http::problem_response(f, r.request_id);
        }
    }
    stream_state state{std::move(*query), 0, with.feed.join(), r.principal};
    if (!state.place) {
        failure f = make_failure(errc::too_many_requests, "Too many streams of the history are open at this gateway.");
        f.retry_after = 10s;
        co_return http::problem_response(f, r.request_id);
    }
    auto settled = with.feed.settled();
    const auto give_up = steady_clock::now() + start_patience;
    while (!last && !settled && steady_clock::now() < give_up) {
        if (!co_await pause(look_interval)) break;
        settled = with.feed.settled();
    }
    if (!last && !settled) {
        failure f = make_failure(errc::storage_unavailable, "How far the history goes is not known yet.");
        f.retry_after = 1s;
        co_return http::problem_response(f, r.request_id);
    }
    if (last && (!settled || *last > *settled)) {
        const auto tail = co_await with.history.read_tail(r.deadline);
        if (!tail) co_return http::problem_response(tail.error(), r.request_id);
        if (*last > tail->last_id) {
            const failure f = invalid_field("Last-Event-ID", "is ahead of this history");
            co_return http::problem_response(f, r.request_id);
        }
    }
    state.position = last ? *last : *settled;
    http::response out;
    out.content_type = "text/event-stream";
    out.headers.emplace_back("X-Accel-Buffering", "no");
    out.stream = [with, state = std::move(state)](http::body_stream& to) { return follow(with, state, to); };
    co_return out;
}

}  // namespace fencegate::api
