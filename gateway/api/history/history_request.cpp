#include <gateway/api/history/history_request.hpp>

#include <gateway/domain/history_events.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/runtime/rfc3339.hpp>

#include <lockcore/encoding.hpp>
#include <lockcore/types.hpp>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <span>

namespace fencegate::api {
namespace {

constexpr std::int64_t page_limit_max = 1'000;
constexpr std::int64_t whole_limit_max = 1'000'000'000'000;
constexpr std::int64_t buckets_max = 2'000;
constexpr std::int64_t bucket_ms_max = 366LL * 24 * 3'600 * 1'000;

/// Returns whether a text is one or several names of events, separated by commas, each once.
bool are_events(std::string_view text) {
    std::set<std::string_view> found;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        const std::string_view name = text.substr(begin, end - begin);
        if (std::ranges::find(history_events, name) == history_events.end() || !found.insert(name).second) return false;
        begin = end + 1;
    }
    return true;
}

bool is_uuid(std::string_view text) {
    if (text.size() != 36) return false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? text[i] != '-' : !lockcore::is_hex(text.substr(i, 1))) return false;
    }
    return true;
}

std::optional<std::uint64_t> read_token(const http::query_reader& query, std::string_view name) {
    const auto token = query.integer(name, {0, lockcore::fencing_token_max});
    if (!token) return std::nullopt;
    return static_cast<std::uint64_t>(*token);
}

/// Reads `order` and `cursor` into `out`. Faults of their content go to `faults`.
///
/// Errors: errc::misdirected_request, which the caller reports only if there are no faults.
result<void> read_position(const http::query_reader& query, lockcore::cell_id cell, http::fault_list& faults,
                           history_query& out) {
    const auto order = query.text("order");
    if (order && *order != "asc" && *order != "desc") faults.add("order", "has to be asc or desc");
    out.ascending = order == "asc";
    const auto text = query.text("cursor");
    if (!text) return {};
    const auto parts = lockcore::split_cell(*text);
    const auto cursor = parts ? parse_cursor(parts->name) : std::nullopt;
    if (!cursor) {
        faults.add("cursor", "is not a next_cursor of the history");
    } else if (cursor->ascending != out.ascending) {
        faults.add("cursor", "belongs to the other order");
    } else if (parts->cell != cell) {
        return http::other_cell_failure("The cursor", parts->cell, cell);
    } else {
        out.after = cursor->last;
    }
    return {};
}

/// Reads what the queries of the history and of changes have in common; a parameter that the query has not is absent.
///
/// Errors: errc::invalid_request with every fault · errc::misdirected_request.
result<void> read_filters(const http::query_reader& query, lockcore::cell_id cell, history_form form,
                          http::fault_list& faults, history_query& out) {
    out.resource = query.text("resource");
    out.resource_prefix = query.text("resource_prefix");
    out.owner = query.text("owner");
    out.principal = query.text("principal");
    out.trace_id = query.text("trace_id");
    out.event = query.text("event");
    if (out.event && !are_events(*out.event))
        faults.add("event", "is not the name of an event, or several names separated by commas, each once");
    out.write_id = query.text("write_id");
    if (out.write_id && !is_uuid(*out.write_id)) faults.add("write_id", "has to be a UUID");
    out.token_min = read_token(query, "token_min");
    out.token_max = read_token(query, "token_max");
    out.from = read_time(query, "from", faults);
    out.to = read_time(query, "to", faults);
    for (const char* name : {"resource", "owner", "principal", "trace_id", "table", "column"}) {
        if (query.text(name) == "") faults.add(name, "is empty, so that it matches no event");
    }
    if (out.token_min && out.token_max && *out.token_min > *out.token_max)
        faults.add("token_min", "is higher than token_max, so that they match no event");
    if (out.from && out.to && *out.from > *out.to) faults.add("from", "is after to, so that they match no event");
    result<void> position;
    if (form != history_form::stream) {
        const bool page = form == history_form::page;
        const auto limit = query.integer("limit", {1, page ? page_limit_max : whole_limit_max});
        out.limit = static_cast<std::size_t>(limit.value_or(page ? 100 : whole_limit_max));
        position = read_position(query, cell, faults, out);
    }
    if (!faults.empty()) return std::move(faults).to_failure();
    return position;
}

/// Whether a text, or one in an object, has the character that texts of PostgreSQL cannot have.
bool has_nul(const boost::json::value& value) {
    if (const auto* text = value.if_string()) return text->find('\0') != boost::json::string::npos;
    const auto* object = value.if_object();
    return object && std::ranges::any_of(*object, [](const auto& member) {
               return has_nul(boost::json::string(member.key())) || has_nul(member.value());
           });
}

/// Reads the key of a row, a JSON object. Its numbers become text.
std::optional<std::string> read_key(const http::query_reader& query, http::fault_list& faults) {
    const auto text = query.text("key");
    if (!text) return std::nullopt;
    boost::system::error_code fault;
    auto key = boost::json::parse(*text, fault);
    bool valid = !fault && key.is_object() && !key.get_object().empty() && !has_nul(key);
    if (valid) {
        for (auto& [column, value] : key.get_object()) {
            if (value.is_int64() || value.is_uint64()) value = boost::json::serialize(value);
            valid = valid && (value.is_string() || value.is_object());
        }
    }
    if (!valid) faults.add("key", "has to be a JSON object of columns and their values as text, like {\"id\": \"7\"}");
    return boost::json::serialize(key);
}

/// Returns how far the clock of a time as in RFC 3339 is ahead of UTC.
std::chrono::minutes offset_of(std::string_view time) {
    constexpr std::size_t size = 6;  // +hh:mm
    if (time.size() < size) return {};
    const std::string_view text = time.substr(time.size() - size);
    if (text[0] != '+' && text[0] != '-') return {};
    const auto digits = [&text](std::size_t at) { return (text[at] - '0') * 10 + (text[at + 1] - '0'); };
    const std::chrono::minutes ahead(digits(1) * 60 + digits(4));
    return text[0] == '-' ? -ahead : ahead;
}

constexpr std::size_t cursor_bytes_max = 64;
/// All times of cursors are before this, the beginning of the year 10000, in microseconds since 1970.
constexpr std::int64_t end_of_times_us = 253'402'300'800'000'000;

}  // namespace

std::optional<std::chrono::system_clock::time_point> read_time(const http::query_reader& query, std::string_view name,
                                                               http::fault_list& faults) {
    const auto text = query.text(name);
    if (!text) return std::nullopt;
    auto at = runtime::parse_rfc3339(*text);
    if (!at)
        faults.add(std::string(name),
                   "has to be a time of RFC 3339 from 1678 to 2261, like 2026-11-21T10:00:09.894Z (send the + of an "
                   "offset as %2B)");
    return at;
}

result<export_query<history_query>> parse_history_query(std::string_view text, lockcore::cell_id cell,
                                                        history_form form) {
    http::fault_list faults;
    const bool stream = form == history_form::stream;
    const http::query_reader query =
        stream
            ? http::query_reader(text,
                                 {"resource", "resource_prefix", "event", "owner", "principal", "write_id", "token_min",
                                  "token_max", "trace_id", "from", "to"},
                                 faults)
            : http::query_reader(text,
                                 {"resource", "resource_prefix", "event", "owner", "principal", "write_id", "token_min",
                                  "token_max", "trace_id", "from", "to", "order", "limit", "cursor", "proof"},
                                 faults);
    export_query<history_query> out;
    out.proof = query.boolean("proof").value_or(false);
    const auto done = read_filters(query, cell, form, faults, out);
    if (!done) return done.error();
    return out;
}

result<export_query<change_query>> parse_change_query(std::string_view text, lockcore::cell_id cell,
                                                      history_form form) {
    http::fault_list faults;
    const http::query_reader query(text,
                                   {"resource", "resource_prefix", "table", "key", "column", "principal", "write_id",
                                    "token_min", "token_max", "from", "to", "order", "limit", "cursor", "proof"},
                                   faults);
    export_query<change_query> out;
    out.proof = query.boolean("proof").value_or(false);
    out.table = query.text("table");
    out.key = read_key(query, faults);
    out.column = query.text("column");
    const auto done = read_filters(query, cell, form, faults, out);
    if (!done) return done.error();
    return out;
}

result<digest_query> parse_digest_query(std::string_view text, lockcore::cell_id cell, history_form form) {
    http::fault_list faults;
    const http::query_reader query(text, {"order", "limit", "cursor"}, faults);
    digest_query out;
    const auto done = read_filters(query, cell, form, faults, out);
    if (!done) return done.error();
    return out;
}

result<void> authorize_query(const http::rights& rights, const std::optional<std::string>& resource,
                             const std::optional<std::string>& resource_prefix) {
    if (resource) return rights.require(scope::history, *resource);
    return rights.require_for_prefix(scope::history, resource_prefix.value_or(""));
}

result<history_summary_query> parse_history_summary(std::string_view text, std::chrono::system_clock::time_point now) {
    using std::chrono::milliseconds;
    http::fault_list faults;
    const http::query_reader query(text, {"from", "to", "bucket_ms", "resource_prefix"}, faults);
    history_summary_query out;
    out.to = read_time(query, "to", faults).value_or(now);
    out.from = read_time(query, "from", faults).value_or(out.to - std::chrono::hours(1));
    out.bucket = milliseconds(query.integer("bucket_ms", {1, bucket_ms_max}).value_or(60'000));
    out.resource_prefix = query.text("resource_prefix");
    if (out.resource_prefix && out.resource_prefix->size() > lockcore::resource_name::bytes_max)
        faults.add("resource_prefix", "is longer than a resource's name may be, 200 bytes");
    if (!faults.empty()) return std::move(faults).to_failure();
    if (out.from >= out.to) faults.add("from", "has to be before to");
    out.offset = offset_of(query.text("from").value_or(""));
    const auto first = (std::chrono::floor<milliseconds>(out.from.time_since_epoch()) + out.offset) / out.bucket;
    const auto last =
        (std::chrono::ceil<milliseconds>(out.to.time_since_epoch()) - milliseconds(1) + out.offset) / out.bucket;
    if (last - first >= buckets_max)
        faults.add("bucket_ms",
                   "gives more than 2000 buckets between from and to; use longer buckets or a shorter time");
    if (!faults.empty()) return std::move(faults).to_failure();
    return out;
}

result<std::int64_t> parse_event_id(std::string_view text, lockcore::cell_id cell) {
    const failure no_id = invalid_field("Last-Event-ID", "has to be the id of an event of the history");
    const auto parts = lockcore::split_cell(text);
    if (!parts) return no_id;
    const std::string_view digits = parts->name;
    std::int64_t id = 0;
    const auto fault = std::from_chars(digits.data(), digits.data() + digits.size(), id).ec;
    // Each id has one spelling, as each cursor has.
    if (fault != std::errc{} || id < 0 || std::to_string(id) != digits) return no_id;
    const bool names_cell = id != 0 || parts->cell != 0;
    if (names_cell && parts->cell != cell)
        return http::other_cell_failure("The header Last-Event-ID", parts->cell, cell);
    return id;
}

std::string to_text(history_cursor c) {
    const std::string text =
        (c.ascending ? "asc:" : "desc:") + std::to_string(c.last.at_us) + ":" + std::to_string(c.last.id);
    std::string out;
    lockcore::append_base64url(out, std::as_bytes(std::span(text)));
    return out;
}

std::optional<history_cursor> parse_cursor(std::string_view text) {
    if (text.empty() || text.size() > cursor_bytes_max) return std::nullopt;
    const auto bytes = lockcore::from_base64url(text);
    if (!bytes) return std::nullopt;
    history_cursor out;
    out.ascending = bytes->starts_with("asc:");
    const std::size_t time = bytes->find(':');
    const std::size_t id = bytes->find(':', time + 1);
    if (time == std::string::npos || id == std::string::npos) return std::nullopt;
    std::from_chars(bytes->data() + time + 1, bytes->data() + id, out.last.at_us);
    std::from_chars(bytes->data() + id + 1, bytes->data() + bytes->size(), out.last.id);
    if (out.last.id < 0 || out.last.at_us < 0 || out.last.at_us >= end_of_times_us) return std::nullopt;
    // Each cursor has one spelling. A text that to_text would not produce, such as one without numbers, is refused.
    if (to_text(out) != text) return std::nullopt;
    return out;
}

}  // namespace fencegate::api
