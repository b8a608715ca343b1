#include <gateway/api/history/history_render.hpp>

#include <gateway/api/history/history_request.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/runtime/rfc3339.hpp>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <optional>
#include <utility>

namespace fencegate::api {
namespace {

std::string text_of(const std::optional<std::uint64_t>& token) {
    return token ? std::to_string(*token) : std::string();
}

/// Returns whether a spreadsheet would evaluate the value as a formula, or whether it begins with an apostrophe. East
/// Asian spreadsheets also accept the full-width forms of the signs.
bool needs_apostrophe(std::string_view value) {
    constexpr std::array<std::string_view, 12> beginnings{"=",  "+", "-",      "@",      "\t",     "\r",
                                                          "\n", "'", "\uFF1D", "\uFF0B", "\uFF0D", "\uFF20"};
    return std::ranges::any_of(beginnings, [value](std::string_view sign) { return value.starts_with(sign); });
}

/// Returns whether a spreadsheet may end a cell at this character. One that splits at a character other than the comma
/// does so inside quotes too, because the quotes are not at the beginning of its cells.
bool may_end_cell(char c) {
    return std::string_view(";|\t\r\n").find(c) != std::string_view::npos;
}

/// Appends a CSV field, quoted only if needed. Adds an apostrophe before a value, or a part of it after a character
/// that may end a cell, that a spreadsheet would evaluate or that begins with an apostrophe, so that a reader can
/// remove it again; also before such a part that begins with a quotation mark, which a spreadsheet would remove before
/// it evaluates the rest.
void append_field(std::string& text, std::string_view value) {
    const bool quoted = value.find_first_of("\",;|\t\r\n") != std::string_view::npos;
    if (quoted) text += '"';
    if (needs_apostrophe(value)) text += '\'';
    for (std::size_t i = 0; i < value.size(); ++i) {
        const bool begins_cell = i > 0 && may_end_cell(value[i - 1]) && !may_end_cell(value[i]);
        if (begins_cell && (value[i] == '"' || needs_apostrophe(value.substr(i)))) text += '\'';
        if (value[i] == '"') text += '"';
        text += value[i];
    }
    if (quoted) text += '"';
}

/// Appends a CSV record with its CRLF.
void append_record(std::string& text, std::initializer_list<std::string_view> fields) {
    for (const std::string_view& field : fields) {
        if (&field != fields.begin()) text += ',';
        append_field(text, field);
    }
    text += "\r\n";
}

using std::chrono::system_clock;

void append_token(http::object_writer& out, std::string_view name, const std::optional<std::uint64_t>& token) {
    if (token) {
        out.number(name, *token);
    } else {
        out.null(name);
    }
}

std::string_view json_or_null(const std::string& json) {
    return json.empty() ? "null" : std::string_view(json);
}

template <class Item>
void append_items(std::string& text, const std::vector<Item>& items) {
    text += '[';
    for (const Item& item : items) {
        if (&item != items.data()) text += ',';
        append_history_item(text, item);
    }
    text += ']';
}

template <class Page>
std::string render_page(const Page& page, bool ascending, lockcore::cell_id cell) {
    std::string text;
    text.reserve(64 + 384 * page.items.size());
    http::object_writer out(text);
    out.key("items");
    append_items(text, page.items);
    if (page.more && !page.items.empty()) {
        out.text("next_cursor", lockcore::mark_cell(cell, to_text({ascending, position_of(page.items.back())})));
    } else {
        out.null("next_cursor");
    }
    out.end();
    return text;
}

std::optional<std::chrono::milliseconds> ttl_of(const history_item& item) {
    boost::system::error_code fault;
    const auto detail = boost::json::parse(item.detail.empty() ? "null" : item.detail, fault);
    const auto* object = fault ? nullptr : detail.if_object();
    const auto* ttl = object == nullptr ? nullptr : object->if_contains("ttl_ms");
    if (ttl == nullptr || !ttl->is_int64()) return std::nullopt;
    return std::chrono::milliseconds(ttl->get_int64());
}

}  // namespace

void append_history_item(std::string& text, const history_item& item) {
    http::object_writer out(text);
    out.number("id", item.id)
        .text("at", runtime::to_rfc3339(item.at))
        .text("event", item.event)
        .text_or_null("resource", item.resource);
    append_token(out, "fencing_token", item.fencing_token);
    append_token(out, "last_fencing_token", item.last_fencing_token);
    out.text_or_null("owner", item.initiator.owner)
        .text_or_null("principal", item.initiator.principal)
        .text_or_null("write_id", item.write_id);
    out.text_or_null("trace_id", item.initiator.trace_id).raw("detail", json_or_null(item.detail)).end();
}

void append_history_item(std::string& text, const change_item& item) {
    http::object_writer out(text);
    out.number("id", item.id)
        .text("at", runtime::to_rfc3339(item.at))
        .text("table", item.table)
        .text("operation", item.operation)
        .raw("key", json_or_null(item.key))
        .raw("old", json_or_null(item.old_values))
        .raw("new", json_or_null(item.new_values))
        .text_or_null("resource", item.resource);
    append_token(out, "fencing_token", item.fencing_token);
    out.text_or_null("write_id", item.write_id)
        .text_or_null("principal", item.principal)
        .boolean("direct", item.direct)
        .text_or_null("application", item.application)
        .end();
}

void append_history_item(std::string& text, const digest_item& item) {
    text += item.line;
}

void append_history_items(std::string& text, const std::vector<history_item>& items) {
    append_items(text, items);
}

std::string render_history(const history_page& page, bool ascending, lockcore::cell_id cell) {
    return render_page(page, ascending, cell);
}

std::string render_history(const change_page& page, bool ascending, lockcore::cell_id cell) {
    return render_page(page, ascending, cell);
}

std::string render_history(const digest_page& page, bool ascending, lockcore::cell_id cell) {
    return render_page(page, ascending, cell);
}

std::string_view history_csv_head() {
    return "id,at,event,resource,fencing_token,last_fencing_token,owner,principal,write_id,trace_id,detail\r\n";
}

std::string_view change_csv_head() {
    return "id,at,table,operation,key,old,new,resource,fencing_token,write_id,principal,direct,application\r\n";
}

void append_history_csv(std::string& text, const history_item& item) {
    append_record(text, {std::to_string(item.id), runtime::to_rfc3339(item.at), item.event, item.resource,
                         text_of(item.fencing_token), text_of(item.last_fencing_token), item.initiator.owner,
                         item.initiator.principal, item.write_id, item.initiator.trace_id, item.detail});
}

void append_history_csv(std::string& text, const change_item& item) {
    append_record(text, {std::to_string(item.id), runtime::to_rfc3339(item.at), item.table, item.operation, item.key,
                         item.old_values, item.new_values, item.resource, text_of(item.fencing_token), item.write_id,
                         item.principal, item.direct ? "true" : "false", item.application});
}

void append_history_event(std::string& text, const history_item& item, lockcore::cell_id cell) {
    text += "id: " + lockcore::mark_cell(cell, std::to_string(item.id)) + "\nevent: " + item.event + "\ndata: ";
    append_history_item(text, item);
    text += "\n\n";
}

void lease_timeline::add(history_item item) {
    ++events_;
    const auto& event = item.event;
    if (event == "lease_granted" || event == "lease_renewed") {
        if (event == "lease_granted" && !granted_) granted_ = item;
        if (event == "lease_renewed" && renewals_++ == 0) renewed_ = item;
        if (const auto ttl = ttl_of(item)) runs_until_ = item.at + *ttl;
    } else if (event == "lease_released" || event == "lease_revoked" || event == "lease_expired") {
        ended_ = item;
    } else if (event == "write_applied") {
        ++applied_;
    } else if (event == "write_rejected") {
        ++rejected_;
    } else if (event == "write_failed") {
        ++failed_;
    }
    if (shown_.size() < shown_max) shown_.push_back(std::move(item));
}

std::string_view lease_timeline::describe_end(bool live, bool whole) const {
    if (live) return "live";
    if (ended_) {
        return ended_->event == "lease_released"  ? "released"
               : ended_->event == "lease_revoked" ? "revoked"
                                                  : "expired";
    }
    if (!(granted_ || renewed_) || !whole) return "unknown";
    // While the ttl runs, the event of the end has not reached the history yet, or the nodes did not answer.
    if (runs_until_ && *runs_until_ > system_clock::now()) return "unknown";
    return "ran_out";
}

std::string lease_timeline::render(std::string_view resource, std::uint64_t token, bool live, bool whole) const {
    std::string text;
    http::object_writer out(text);
    out.text("resource", resource).number("fencing_token", token);
    if (const auto& first = granted_ ? granted_ : renewed_) {
        out.key("held_by");
        const actor& initiator = first->initiator;
        http::object_writer(text)
            .text_or_null("principal", initiator.principal)
            .text_or_null("owner", initiator.owner)
            .text_or_null("trace_id", initiator.trace_id)
            .end();
    } else {
        out.null("held_by");
    }
    if (granted_) {
        out.text("granted_at", runtime::to_rfc3339(granted_->at));
    } else {
        out.null("granted_at");
    }
    const std::string_view end_state = describe_end(live, whole);
    out.text("end", end_state);
    const auto ended_at = ended_ ? std::optional(ended_->at) : end_state == "ran_out" ? runs_until_ : std::nullopt;
    if (ended_at) {
        out.text("ended_at", runtime::to_rfc3339(*ended_at));
    } else {
        out.null("ended_at");
    }
    out.raw("end_detail", ended_ && !ended_->detail.empty() ? ended_->detail : "null");
    out.number("renewals", renewals_).number("writes_applied", applied_);
    out.number("writes_rejected", rejected_).number("writes_failed", failed_);
    out.boolean("complete", whole && events_ == static_cast<std::int64_t>(shown_.size())).key("events");
    append_history_items(text, shown_);
    out.end();
    return text;
}

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

}  // namespace fencegate::api
