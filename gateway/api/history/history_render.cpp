#include <gateway/api/history/history_render.hpp>

#include <gateway/api/history/history_request.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/runtime/rfc3339.hpp>

#include <algorithm>
#include <array>
#include <optional>

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

/// Appends a CSV field, quoted only if needed. Adds an apostrophe before a value, or a part of it after a character that
/// may end a cell, that a spreadsheet would evaluate or that begins with an apostrophe, so that a reader can remove it
/// again; also before such a part that begins with a quotation mark, which a spreadsheet would remove before it evaluates
/// the rest.
void append_field(std::string& text, std::string_view value, char end = ',') {
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
    if (end == ',') {
        text += ',';
    } else {
        text += "\r\n";
    }
}

}  // namespace

void append_history_item(std::string& text, const history_item& item) {
    http::object_writer out(text);
    out.number("id", item.id)
        .text("at", runtime::to_rfc3339(item.at))
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
    out.text_or_null("owner", item.initiator.owner)
        .text_or_null("principal", item.initiator.principal)
        .text_or_null("write_id", item.write_id);
    out.text_or_null("trace_id", item.initiator.trace_id)
        .raw("detail", item.detail.empty() ? "null" : item.detail)
        .end();
}

void append_history_items(std::string& text, const std::vector<history_item>& items) {
    text += '[';
    for (const history_item& item : items) {
        if (&item != items.data()) text += ',';
        append_history_item(text, item);
    }
    text += ']';
}

std::string render_history(const history_page& page, bool ascending, lockcore::cell_id cell) {
    std::string text;
    text.reserve(64 + 384 * page.items.size());
    http::object_writer out(text);
    out.key("items");
    append_history_items(text, page.items);
    if (page.more && !page.items.empty()) {
        out.text("next_cursor", lockcore::mark_cell(cell, to_text({ascending, position_of(page.items.back())})));
    } else {
        out.null("next_cursor");
    }
    out.end();
    return text;
}

std::string_view history_csv_head() {
    return "id,at,event,resource,fencing_token,last_fencing_token,owner,principal,write_id,trace_id,detail\r\n";
}

void append_history_csv(std::string& text, const history_item& item) {
    append_field(text, std::to_string(item.id));
    append_field(text, runtime::to_rfc3339(item.at));
    append_field(text, item.event);
    append_field(text, item.resource);
    append_field(text, text_of(item.fencing_token));
    append_field(text, text_of(item.last_fencing_token));
    append_field(text, item.initiator.owner);
    append_field(text, item.initiator.principal);
    append_field(text, item.write_id);
    append_field(text, item.initiator.trace_id);
    append_field(text, item.detail, '\n');
}

void append_history_event(std::string& text, const history_item& item, lockcore::cell_id cell) {
    text += "id: " + lockcore::mark_cell(cell, std::to_string(item.id)) + "\nevent: " + item.event + "\ndata: ";
    append_history_item(text, item);
    text += "\n\n";
}

}  // namespace fencegate::api
