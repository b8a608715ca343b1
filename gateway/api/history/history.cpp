#include <gateway/api/routes.hpp>

#include <gateway/api/history/history_pages.hpp>
#include <gateway/api/history/history_render.hpp>
#include <gateway/api/history/history_request.hpp>
#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/leases/lease_lifecycle.hpp>
#include <gateway/api/leases/lease_request.hpp>
#include <gateway/api/leases/lease_responses.hpp>
#include <gateway/audit/history_feed.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/pg/database.hpp>
#include <gateway/pg/history/history_reader.hpp>
#include <gateway/runtime/rfc3339.hpp>

#include <lockcore/lock_manager.hpp>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

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

awaitable<void> follow(const history_services& services, stream_state state, http::body_stream& out) {
    const lockcore::cell_id cell = services.settings.protocol.cell;
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

using boost::asio::awaitable;

constexpr std::size_t last_events = 20;

constexpr std::size_t shared_shown_max = 100;

/// The leases as a majority of nodes sees them. Errors: `no_quorum` without a majority; `resource_locked` if another
/// value occupies the key.
using seen_leases = lockcore::result<lockcore::resource_leases>;

/// Answers with the resource as it was; with its rows if the caller may read every row, with the state of tables if it
/// may read the events that changed them.
http::awaitable_response show_resource_at(const history_services& services, http::request r, std::string resource,
                                          std::chrono::system_clock::time_point at) {
    const bool with_rows = r.rights->require_all_rows().has_value();
    const bool with_tables = r.rights->require(scope::history).has_value();
    auto read = [resource = std::move(resource), at, with_rows, with_tables](pg::session& session) {
        std::string found = pg::read_resource_at(session, resource, at, with_rows);
        if (with_tables) return found;
        auto limited = boost::json::parse(found);
        limited.as_object()["tables"] = nullptr;
        return boost::json::serialize(limited);
    };
    auto found = co_await services.database.read(r.principal, read_cost::expensive, r.deadline, std::move(read));
    if (!found) co_return found.error();
    co_return http::json_response(std::move(*found));
}

http::awaitable_response show_token(const history_services& services, http::request r, lockcore::resource_name resource,
                                    std::uint64_t token) {
    history_query query;
    query.resource = resource.str();
    query.token_min = query.token_max = token;
    query.ascending = true;
    query.limit = pg::history_page_max;
    query.with_wanted = r.rights->require_all_rows().has_value();
    lease_timeline timeline;
    for (std::int64_t read = 0;;) {
        auto page = co_await services.database.read_history(r.principal, read_cost::cheap, query, r.deadline);
        if (!page) co_return page.error();
        read += static_cast<std::int64_t>(page->items.size());
        if (page->more) query.after = position_of(page->items.back());
        for (history_item& item : page->items)
            timeline.add(std::move(item));
        if (page->more && read < resource_events_counted_max) continue;
        const seen_leases seen = co_await services.locks.find_leases(resource, shared_shown_max);
        const auto has_token = [&](const auto& lease) { return lockcore::value_of(lease.claims.token) == token; };
        const bool live = seen && std::ranges::any_of(seen->leases, has_token);
        if (!timeline.empty() || live)
            co_return http::json_response(timeline.render(resource.str(), token, live, !page->more));
        const failure none = make_failure(errc::not_found, "The history has no such token of this resource.");
        co_return none;
    }
}

std::string_view state_of(const seen_leases& seen) {
    if (seen) return seen->leases.empty() ? "free" : "held";
    return seen.error().code == lockcore::errc::resource_locked ? "occupied" : "unknown";
}

std::string render_resource(const lockcore::resource_name& resource, const resource_facts& facts,
                            const seen_leases& seen, std::size_t nodes) {
    std::string text;
    http::object_writer out(text);
    out.text("resource", resource.str()).number("last_fencing_token", facts.last_fencing_token);
    out.number("last_read_token", facts.last_read_token);
    out.text("lease_state", state_of(seen));
    if (!seen) out.raw("nodes", boost::json::serialize(to_failure(seen.error()).facts.at("nodes")));
    const bool is_held = seen && !seen->leases.empty();
    if (is_held && !seen->shared) {
        out.raw("lease", render_live_lease(seen->leases.front(), resource, nodes));
    } else {
        out.null("lease");
    }
    if (is_held && seen->shared) {
        out.key("shared_leases");
        append_live_leases(text, seen->leases, &resource, nodes);
        out.number("shared_leases_total", seen->total);
    }
    out.key("counts");
    http::object_writer counts(text);
    for (const auto& [event, count] : facts.counts)
        counts.number(event, count);
    counts.end();
    out.boolean("counts_complete", facts.all_counted).key("last_events");
    append_history_items(text, facts.last_events);
    out.end();
    return text;
}

}  // namespace

http::awaitable_response summarize_history(const history_services& services, http::request r) {
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

http::awaitable_response follow_history(const history_services& services, http::request r) {
    auto query = parse_history_query(r.query, services.settings.protocol.cell, history_form::stream);
    if (!query) co_return query.error();
    const auto allowed = authorize_query(*r.rights, query->resource, query->resource_prefix);
    if (!allowed) co_return allowed.error();
    query->limit = pg::history_page_max;
    std::optional<std::int64_t> last;
    if (r.has_header("last-event-id")) {
        const auto id = parse_event_id(r.header("last-event-id"), services.settings.protocol.cell);
        if (!id) co_return id.error();
        last = *id;
    }
    auto places = admit_stream(services.limiter, r, {limits::use::streams, limits::use::history_streams});
    if (!places) co_return places.error();
    query->with_wanted = r.rights->require_all_rows().has_value();
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
    if (const auto recorded = record_read(services, r); !recorded) co_return recorded.error();
    state.position = last ? *last : *settled;
    http::response out;
    out.content_type = "text/event-stream";
    out.headers.emplace_back("X-Accel-Buffering", "no");
    out.stream = [&services, state = std::move(state)](http::body_stream& body) {
        return follow(services, state, body);
    };
    co_return out;
}

http::awaitable_response show_resource(const history_services& services, http::request r) {
    http::fault_list faults;
    const http::query_reader query = r.path_parameters.empty()
                                         ? http::query_reader(r.query, {"resource", "fencing_token", "at"}, faults)
                                         : http::query_reader(r.query, {"fencing_token", "at"}, faults);
    auto resource = read_resource(r, query);
    if (!resource) co_return resource.error();
    const auto allowed = r.rights->require(scope::history, resource->str());
    if (!allowed) co_return allowed.error();
    const auto token = query.integer("fencing_token", {1, lockcore::fencing_token_max});
    const auto at = read_time(query, "at", faults);
    if (at && token) faults.add("at", "can't be sent together with fencing_token");
    if (at && *at > std::chrono::system_clock::now()) faults.add("at", "is in the future");
    if (!faults.empty()) co_return std::move(faults).to_failure();
    if (const auto recorded = record_read(services, r); !recorded) co_return recorded.error();
    if (at) co_return co_await show_resource_at(services, std::move(r), resource->str(), *at);
    if (token)
        co_return co_await show_token(services, std::move(r), std::move(*resource), static_cast<std::uint64_t>(*token));

    auto read = [resource = *resource](pg::session& session) {
        return pg::read_resource(session, resource.str(), last_events);
    };
    const auto facts = co_await services.database.read(r.principal, read_cost::cheap, r.deadline, std::move(read));
    if (!facts) co_return facts.error();
    const seen_leases seen = co_await services.locks.find_leases(*resource, shared_shown_max);
    co_return http::json_response(render_resource(*resource, *facts, seen, services.settings.protocol.nodes.size()));
}

}  // namespace fencegate::api
