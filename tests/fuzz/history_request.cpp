// The query strings, cursors and event ids of GET /v1/history, its summary and its stream, down to the SQL.
#include "fuzz.hpp"
#include "refusal.hpp"
#include "sql_check.hpp"

#include <gateway/api/history/history_request.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/pg/history/history_reader.hpp>

#include <algorithm>
#include <cctype>
#include <string>

namespace fencegate::fuzz {
namespace {

constexpr lockcore::cell_id own_cell = 7;
constexpr std::uint64_t token_max = (std::uint64_t{1} << 53U) - 1;

/// Returns the decoded value of a parameter that the query has once.
std::string parameter(std::string_view query, std::string_view name) {
    http::fault_list faults;
    for (const auto& [key, value] : http::query_parameters(query, faults)) {
        if (key == name) return value;
    }
    return {};
}

void check_query(std::string_view text, api::history_form form) {
    const auto query = api::parse_history_query(text, own_cell, form);
    if (!query) return check_refusal(query.error());
    const std::size_t limit_max = form == api::history_form::page ? 1'000 : 1'000'000'000'000;
    require(query->limit >= 1 && query->limit <= limit_max, "the limit is bounded");
    require(query->token_min.value_or(0) <= token_max && query->token_max.value_or(0) <= token_max,
            "a token is below 2^53");
    if (query->write_id) {
        require(query->write_id->size() == 36 &&
                    std::ranges::all_of(*query->write_id,
                                        [](unsigned char c) { return std::isxdigit(c) != 0 || c == '-'; }),
                "a write_id is a UUID");
    }
    if (query->event) {
        require(!query->event->empty() &&
                    std::ranges::all_of(*query->event,
                                        [](char c) { return (c >= 'a' && c <= 'z') || c == '_' || c == ','; }),
                "an event is a name of the documentation");
    }
    require(form != api::history_form::stream || (!query->after && !query->ascending), "a stream has no order");
    if (query->after) {
        const std::string cursor =
            lockcore::mark_cell(own_cell, to_text(api::history_cursor{query->ascending, *query->after}));
        require(cursor == parameter(text, "cursor"), "a cursor that was read is written as it was");
    }
    check_statement(pg::history_sql(*query));
}

void check_summary(std::string_view text) {
    const std::chrono::system_clock::time_point now{std::chrono::hours(500'000)};
    const auto query = api::parse_history_summary(text, now);
    if (!query) return check_refusal(query.error());
    require(query->from < query->to, "a summary has a time");
    require(query->bucket.count() >= 1, "a bucket has a length");
    // PostgreSQL divides as C++ does: the bucket around 1970 is twice as long.
    const auto first = std::chrono::floor<std::chrono::milliseconds>(query->from.time_since_epoch()) / query->bucket;
    const auto last = std::chrono::ceil<std::chrono::milliseconds>(query->to.time_since_epoch()) / query->bucket;
    require(last - first < 2'000, "the number of buckets is bounded");
}

void check_cursor(std::string_view text) {
    const auto cursor = api::parse_cursor(text);
    if (!cursor) return;
    require(to_text(*cursor) == text, "a cursor has one spelling");
    require(cursor->last.id >= 0 && cursor->last.at_us >= 0, "a cursor is a position in the history");
}

void check_event_id(std::string_view text) {
    const auto id = api::parse_event_id(text, own_cell);
    if (!id) return check_refusal(id.error());
    require(*id >= 0, "an id is not negative");
    const std::string_view digits = text.substr(text.starts_with("7~") ? 2 : 0);
    require(*id == 0 || text.starts_with("7~"), "an id is of this cell");
    require(digits == std::to_string(*id), "an id has one spelling");
}

}  // namespace

void run_input(std::string_view input) {
    for (const auto form : {api::history_form::page, api::history_form::whole, api::history_form::stream})
        check_query(input, form);
    check_summary(input);
    check_cursor(input);
    check_event_id(input);
}

}  // namespace fencegate::fuzz
