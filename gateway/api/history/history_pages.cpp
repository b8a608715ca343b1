#include <gateway/api/history/history_pages.hpp>

#include <gateway/api/history/history_render.hpp>
#include <gateway/api/history/history_request.hpp>
#include <gateway/api/routes.hpp>
#include <gateway/audit/event_sink.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/pg/database.hpp>
#include <gateway/pg/history/history_digest.hpp>
#include <gateway/pg/history/history_reader.hpp>
#include <gateway/runtime/rfc3339.hpp>
#include <gateway/runtime/text.hpp>

#include <boost/asio/this_coro.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <type_traits>

namespace fencegate::api {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

/// Returns a path or a query as it was sent, with other than printable characters of ASCII percent-encoded.
std::string printable_query(std::string_view query) {
    std::string out;
    for (const char& c : query) {
        if (c > ' ' && c <= '~')
            out += c;
        else
            out += runtime::percent_encode({&c, 1});
    }
    return out;
}

/// What the last line of an export proves, while its lines are sent.
class proof_state {
  public:
    proof_state(std::string items, std::string_view query, std::string principal);
    /// Adds the text of `count` lines, at least one.
    void add(std::string_view text, std::size_t count, std::int64_t first_id, std::int64_t last_id);
    /// Returns the last line. Throws std::runtime_error if the key can't sign.
    std::string finish(const config& settings);

  private:
    pg::export_proof proof_;
    pg::text_hash hash_;
};

proof_state::proof_state(std::string items, std::string_view query, std::string principal) {
    proof_.items = std::move(items);
    proof_.query = printable_query(query);
    proof_.principal = std::move(principal);
}

void proof_state::add(std::string_view text, std::size_t count, std::int64_t first_id, std::int64_t last_id) {
    if (proof_.count == 0) proof_.first_id = first_id;
    proof_.last_id = last_id;
    proof_.count += static_cast<std::int64_t>(count);
    hash_.add(text);
}

std::string proof_state::finish(const config& settings) {
    const auto key = read_private_key(settings.audit.digest_key);
    if (!key) throw std::runtime_error("audit.digest_key_file has no private key");
    proof_.made_at = runtime::to_rfc3339(std::chrono::system_clock::now());
    proof_.gateway = name_of_gateway(settings.http);
    proof_.key = pg::key_id_of(*key);
    proof_.sha256 = hash_.finish();
    const std::string text = pg::render_proof(proof_);
    return pg::line_of({text, pg::sign_text(*key, text), {}}) + "\n";
}

enum class export_form { ndjson, csv };

awaitable<result<history_page>> read_page(const history_services& services, std::string principal, read_cost cost,
                                          history_query query, std::chrono::steady_clock::time_point until) {
    return services.database.read_history(std::move(principal), cost, std::move(query), until);
}

awaitable<result<change_page>> read_page(const history_services& services, std::string principal, read_cost cost,
                                         change_query query, std::chrono::steady_clock::time_point until) {
    auto work = [query = std::move(query)](pg::session& session) { return pg::read_changes(session, query); };
    return services.database.read(std::move(principal), cost, until, std::move(work));
}

awaitable<result<digest_page>> read_page(const history_services& services, std::string principal, read_cost cost,
                                         digest_query query, std::chrono::steady_clock::time_point until) {
    auto work = [query = std::move(query)](pg::session& session) { return pg::read_digest_page(session, query); };
    return services.database.read(std::move(principal), cost, until, std::move(work));
}

/// The state of one export: of events, of changes of rows, or of digests, which have no CSV.
template <class Query, class Page>
struct export_state {
    Query query;
    Page page;         ///< Read but not sent yet.
    std::size_t left;  ///< Maximum number of items still to send, including those of the page.
    export_form form;
    std::string principal;
    http::rights::time_point rights_until;  ///< No page is read after it.
    std::optional<proof_state> proof;       ///< Empty: none is asked for.
};

template <class Query, class Page>
std::string render_lines(const export_state<Query, Page>& state) {
    std::string text;
    text.reserve(400 * state.page.items.size());
    for (const auto& item : state.page.items) {
        if constexpr (requires { append_history_csv(text, item); }) {
            if (state.form == export_form::csv) {
                append_history_csv(text, item);
                continue;
            }
        }
        append_history_item(text, item);
        text += '\n';
    }
    return text;
}

/// Returns whether the caller hung up or the gateway stops.
awaitable<bool> is_cancelled() {
    co_return (co_await asio::this_coro::cancellation_state).cancelled() != asio::cancellation_type::none;
}

/// Sends all pages. While the caller reads, only the text of the current page is in memory.
template <class Query, class Page>
awaitable<void> send_all(const history_services& services, std::shared_ptr<export_state<Query, Page>> shared,
                         std::string_view csv_head, http::body_stream& out) {
    export_state<Query, Page>& state = *shared;
    if (state.form == export_form::csv && !co_await out.send(csv_head)) co_return;
    for (;;) {
        std::string text = render_lines(state);
        if (state.proof && !state.page.items.empty())
            state.proof->add(text, state.page.items.size(), state.page.items.front().id, state.page.items.back().id);
        state.left -= state.page.items.size();
        const bool more = state.page.more && state.left > 0;
        if (more) state.query.after = position_of(state.page.items.back());
        state.page = {};
        if (!more && state.proof) text += state.proof->finish(services.settings);
        if (!co_await out.send(text)) co_return;
        std::string().swap(text);  // An assignment of {} would keep the memory.
        if (!more) co_return;
        if (co_await is_cancelled())
            throw std::runtime_error("the export is incomplete: the caller hung up or the gateway stops");
        if (http::rights::time_point::clock::now() >= state.rights_until)
            throw std::runtime_error("the export is incomplete: the caller's token or certificate has ended");
        state.query.limit = std::min(state.left, pg::history_page_max);
        auto page = co_await read_page(services, state.principal, read_cost::continued, state.query,
                                       std::chrono::steady_clock::now() + services.settings.http.request_timeout);
        if (!page) throw std::runtime_error(page.error().detail);
        state.page = std::move(*page);
    }
}

/// Streams all matching items, page by page as the caller reads them. At any time one page is in memory, and no
/// connection to PostgreSQL is reserved between two pages. Later items are not part of the answer. If a page cannot be
/// read or the gateway stops, the answer ends without its last chunk, so that the caller sees that it is incomplete.
template <class Query, class Page>
http::awaitable_response export_items(const history_services& services, Query query, export_form form,
                                      std::string_view csv_head, http::request r) {
    export_state<Query, Page> state{std::move(query), {}, 0, form, r.principal, r.rights_until, {}};
    if constexpr (requires { query.proof; }) {
        if (state.query.proof) {
            state.proof.emplace(std::is_same_v<Page, change_page> ? "changes" : "history", r.query, r.principal);
        }
    }
    state.left = state.query.limit;
    // Without an end an ascending export would also send new events, perhaps for ever.
    if (state.query.ascending && !state.query.to) state.query.to = std::chrono::system_clock::now();
    state.query.limit = std::min(state.left, pg::history_page_max);
    auto first = co_await read_page(services, r.principal, read_cost::expensive, state.query, r.deadline);
    if (!first) co_return first.error();
    if constexpr (!std::is_same_v<Page, digest_page>) {
        if (const auto recorded = record_read(services, r); !recorded) co_return recorded.error();
    }
    state.page = std::move(*first);
    http::response out;
    out.content_type = form == export_form::csv ? "text/csv; charset=utf-8; header=present" : "application/x-ndjson";
    out.stream = [&services, csv_head, shared = std::make_shared<export_state<Query, Page>>(std::move(state))](
                     http::body_stream& body) { return send_all(services, shared, csv_head, body); };
    co_return out;
}

/// Answers a query in the form that the request asks for: application/json, application/x-ndjson, text/csv.
template <class Page, class Query>
http::awaitable_response answer_query(const history_services& services, result<Query> query, std::string_view csv_head,
                                      http::request r) {
    if (!query) co_return query.error();
    const auto allowed = authorize_query(*r.rights, query->resource, query->resource_prefix);
    if (!allowed) co_return allowed.error();
    if constexpr (requires { query->proof; }) {
        if (query->proof && r.media_type != 1)
            co_return invalid_field("proof", "needs the header Accept: application/x-ndjson");
        if (query->proof && services.settings.audit.digest_key.empty())
            co_return invalid_field("proof", "this gateway has no key that signs: it has no audit.digest_key_file");
    }
    if constexpr (requires { query->with_wanted; }) query->with_wanted = r.rights->require_all_rows().has_value();
    if (r.media_type != 0) {
        const auto form = r.media_type == 1 ? export_form::ndjson : export_form::csv;
        co_return co_await export_items<Query, Page>(services, std::move(*query), form, csv_head, std::move(r));
    }
    const bool ascending = query->ascending;
    const auto cost = is_search(*query) ? read_cost::expensive : read_cost::cheap;
    const auto page = co_await read_page(services, r.principal, cost, std::move(*query), r.deadline);
    if (!page) co_return page.error();
    if constexpr (!std::is_same_v<Page, digest_page>) {
        if (const auto recorded = record_read(services, r, page->items.size()); !recorded) co_return recorded.error();
    }
    co_return http::json_response(render_history(*page, ascending, services.settings.protocol.cell));
}

history_form form_of(const http::request& r) {
    return r.media_type == 0 ? history_form::page : history_form::whole;
}

}  // namespace

result<void> record_read(const history_services& services, const http::request& r, std::optional<std::size_t> rows) {
    if (!services.settings.audit.record_reads) return {};
    history_item item;
    item.event = "history_read";
    item.at = std::chrono::system_clock::now();
    item.initiator.principal = r.principal;
    set_origin(item.initiator, r.origin);
    boost::json::object detail{{"path", printable_query(r.path)}, {"query", printable_query(r.query)}};
    if (rows) detail["rows"] = *rows;
    item.detail = boost::json::serialize(detail);
    if (services.events.add_low_priority(std::move(item))) return {};
    failure f = make_failure(errc::storage_unavailable,
                             "The read can't be recorded (audit.record_reads): too many events wait for PostgreSQL.");
    f.retry_after = std::chrono::seconds(1);
    return f;
}

http::awaitable_response show_history(const history_services& services, http::request r) {
    auto query = parse_history_query(r.query, services.settings.protocol.cell, form_of(r));
    return answer_query<history_page>(services, std::move(query), history_csv_head(), std::move(r));
}

http::awaitable_response show_changes(const history_services& services, http::request r) {
    const auto allowed = r.rights->require_all_rows();
    if (!allowed) return http::as_awaitable(allowed.error());
    auto query = parse_change_query(r.query, services.settings.protocol.cell, form_of(r));
    return answer_query<change_page>(services, std::move(query), change_csv_head(), std::move(r));
}

http::awaitable_response show_digests(const history_services& services, http::request r) {
    auto query = parse_digest_query(r.query, services.settings.protocol.cell, form_of(r));
    return answer_query<digest_page>(services, std::move(query), {}, std::move(r));
}

}  // namespace fencegate::api
