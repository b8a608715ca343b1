#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/history_item.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/identity/identity.hpp>

#include <lockcore/types.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::api {

/// The form in which the history is requested. It decides which parameters are allowed beside the filters.
enum class history_form {
    page,    ///< `order`, `cursor`, and `limit` for a page.
    whole,   ///< `order`, `cursor`, and `limit` for the whole answer; without `limit`, all events.
    stream,  ///< Future events: filters only.
};

/// Reads a parameter that is a time. Out: empty if it is absent or a fault.
std::optional<std::chrono::system_clock::time_point> read_time(const http::query_reader& query, std::string_view name,
                                                               http::fault_list& faults);

/// A query with what only an answer with all items has.
template <class Query>
struct export_query : Query {
    bool proof = false;  ///< The last line is a signed proof (pg::export_proof).
};

/// Parses the query of GET /v1/history and GET /v1/history/stream.
///
/// Out:    `limit` is that of the page, or of the whole answer.
/// Errors: errc::invalid_request with every fault · errc::misdirected_request for a cursor of another cell than `cell`.
result<export_query<history_query>> parse_history_query(std::string_view query, lockcore::cell_id cell,
                                                        history_form form = history_form::page);

/// Parses the query of GET /v1/changes, as that of the history. The values of `key` become text, as changes have them.
result<export_query<change_query>> parse_change_query(std::string_view query, lockcore::cell_id cell,
                                                      history_form form);

/// Parses the query of GET /v1/history/digests: order, limit and cursor as the history has them.
result<digest_query> parse_digest_query(std::string_view query, lockcore::cell_id cell, history_form form);

/// Requires the scope `history` for what a query asks for: a resource, the resources of a prefix, otherwise all.
///
/// Errors: errc::forbidden.
result<void> authorize_query(const http::rights& rights, const std::optional<std::string>& resource,
                             const std::optional<std::string>& resource_prefix);

/// Parses the query of GET /v1/history/summary. Defaults: `to` is now, `from` an hour before `to`, `bucket_ms` one
/// minute.
///
/// Errors: errc::invalid_request with every fault, also for more than 2,000 buckets.
result<history_summary_query> parse_history_summary(std::string_view query, std::chrono::system_clock::time_point now);

/// Parses the header Last-Event-ID: the id of the event after which a stream resumes; 0 without a cell, the beginning,
/// is of every cell.
///
/// Errors: errc::invalid_request · errc::misdirected_request for an id of another cell than `cell`.
result<std::int64_t> parse_event_id(std::string_view text, lockcore::cell_id cell);

/// The position at which a page of the history ended. Opaque to callers: base64url of order, at and id,
/// which callers get and send with the cell in front (lockcore::mark_cell).
struct history_cursor {
    bool ascending = false;
    history_position last;
    friend bool operator==(const history_cursor&, const history_cursor&) = default;
};

std::string to_text(history_cursor c);
/// Parses the text of a cursor. Out: empty if to_text did not make it.
std::optional<history_cursor> parse_cursor(std::string_view text);

}  // namespace fencegate::api
