#pragma once

#include <gateway/domain/history_item.hpp>

#include <lockcore/types.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace fencegate::api {

/// Appends an item in the JSON form of docs/http-api.md.
void append_history_item(std::string& text, const history_item& item);

/// Appends items as a JSON array.
void append_history_items(std::string& text, const std::vector<history_item>& items);

/// Returns the JSON of one page with its cursor, which names the cell.
std::string render_history(const history_page& page, bool ascending, lockcore::cell_id cell);

/// Returns the header line of the CSV (RFC 4180), with its CRLF.
std::string_view history_csv_head();
/// Appends an item as one CSV record with its CRLF.
void append_history_csv(std::string& text, const history_item& item);

/// Appends an item as an event of text/event-stream, with its id, which names the cell.
void append_history_event(std::string& text, const history_item& item, lockcore::cell_id cell);

}  // namespace fencegate::api
