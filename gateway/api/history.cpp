#include <gateway/api/history.hpp>

#include <gateway/api/history_cursor.hpp>
#include <gateway/http/accept.hpp>
#include <gateway/http/json_io.hpp>
#include <gateway/http/problem.hpp>
#include <gateway/http/query.hpp>
#include <gateway/http/rfc3339.hpp>
#include <gateway/pg/pool.hpp>

#include <algorithm>
#include <array>

namespace fencegate::api {
namespace {

constexpr std::int64_t limit_max = 1'000;
/// Tokens stay below 2^53.
constexpr std::int64_t token_max = (std::int64_t{1} << 53) - 1;

constexpr std::array<std::string_view, 13> events{
    "lease_granted",    "lease_renewed",   "lease_released", "lease_expired",  "lease_refused",
    "lease_revoked",    "fence_raised",    "write_applied",  "write_rejected", "write_failed",
    "node_quarantined", "node_readmitted", "epoch_raised"};

bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

bool is_uuid(std::string_view text) {
    if (text.size() != 36) return false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? text[i] != '-' : !is_hex(text[i])) return false;
    }
    return true;
}

std::optional<std::chrono::system_clock::time_point> read_time(const http::query_reader& query, std::string_view name,
                                                               http::fault_list& faults) {
    const auto text = query.text(name);
    if (!text) return std::nullopt;
    auto at = http::parse_rfc3339(*text);
    if (!at)
        faults.add(std::string(name),
                   "has to be a time of RFC 3339, as 2026-11-21T10:00:09.894Z (a + in an offset is sent as %2B)");
    return at;
}

std::optional<std::uint64_t> read_token(const http::query_reader& query, std::string_view name) {
    const auto token = query.integer(name, {0, token_max});
    if (!token) return std::nullopt;
    return static_cast<std::uint64_t>(*token);
}

void read_order(const http::query_reader& query, http::fault_list& faults, history_query& out) {
    const auto order = query.text("order");
    if (order && *order != "asc" && *order != "desc") faults.add("order", "has to be asc or desc");
    out.ascending = order == "asc";
    const auto text = query.text("cursor");
    if (!text) return;
    const auto cursor = parse_cursor(*text);
    if (!cursor) {
        faults.add("cursor", "is not a next_cursor of this gateway");
    } else if (cursor->ascending != out.ascending) {
        faults.add("cursor", "belongs to the other order");
    } else {
        out.after = cursor->last;
    }
}

void append_item(std::string& text, const history_item& item) {
    http::object_writer out(text);
    out.number("id", item.id)
        .text("at", http::to_rfc3339(item.at))
        .text("event", item.event)
        .text_or_null("resource", item.resource);
    const auto token = [&](std::string_view name, const std::optional<std::uint64_t>& value) {
        if (value) {
            out.number(name, *value);
        } else {
            out.null(name);
        }
    };
    token("fencing_token", item.fencing_token);
    token("last_fencing_token", item.last_fencing_token);
    out.text_or_null("owner", item.by.owner)
        .text_or_null("principal", item.by.principal)
        .text_or_null("write_id", item.write_id);
    out.text_or_null("trace_id", item.by.trace_id).raw("detail", item.detail.empty() ? "null" : item.detail).end();
}

}  // namespace

result<history_query> parse_history_query(std::string_view text) {
    http::fault_list faults;
    const http::query_reader query(text,
                                   {"resource", "resource_prefix", "event", "owner", "principal", "write_id",
                                    "token_min", "token_max", "trace_id", "from", "to", "order", "limit", "cursor"},
                                   faults);
    history_query out;
    out.resource = query.text("resource");
    out.resource_prefix = query.text("resource_prefix");
    out.owner = query.text("owner");
    out.principal = query.text("principal");
    out.trace_id = query.text("trace_id");
    out.event = query.text("event");
    if (out.event && std::ranges::find(events, *out.event) == events.end())
        faults.add("event", "is not the name of an event");
    out.write_id = query.text("write_id");
    if (out.write_id && !is_uuid(*out.write_id)) faults.add("write_id", "has to be a UUID");
    out.token_min = read_token(query, "token_min");
    out.token_max = read_token(query, "token_max");
    out.from = read_time(query, "from", faults);
    out.to = read_time(query, "to", faults);
    out.limit =
        static_cast<std::size_t>(query.integer("limit", {1, limit_max}).value_or(static_cast<std::int64_t>(out.limit)));
    read_order(query, faults, out);
    if (!faults.empty()) return std::move(faults).to_failure();
    return out;
}

std::string render_history(const history_page& page, bool ascending) {
    std::string text;
    text.reserve(64 + 384 * page.items.size());
    http::object_writer out(text);
    out.key("items");
    text += '[';
    for (const history_item& item : page.items) {
        if (&item != page.items.data()) text += ',';
        append_item(text, item);
    }
    text += ']';
    if (page.more && !page.items.empty()) {
        const auto& last = page.items.back();
        const auto at = std::chrono::floor<std::chrono::microseconds>(last.at.time_since_epoch());
        out.text("next_cursor", to_text({ascending, {at.count(), last.id}}));
    } else {
        out.null("next_cursor");
    }
    out.end();
    return text;
}

boost::asio::awaitable<http::response> show_history(services with, http::request r) {
    if (http::preferred_type(r.header("accept"), {"application/json", "application/x-ndjson", "text/csv"}) !=
        std::size_t{0}) {
        const failure f = make_failure(errc::not_acceptable,
                                       "This version gives the history as application/json only, in pages; it does not "
                                       "stream application/x-ndjson or text/csv.");
        co_return http::problem_response(f, r.request_id);
    }
    auto query = parse_history_query(r.query);
    if (!query) co_return http::problem_response(query.error(), r.request_id);
    const bool ascending = query->ascending;
    const auto page = co_await with.database.read_history(std::move(*query), r.deadline);
    if (!page) co_return http::problem_response(page.error(), r.request_id);
    co_return http::json_response(render_history(*page, ascending));
}

}  // namespace fencegate::api
