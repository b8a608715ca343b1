#pragma once

#include <gateway/domain/history_item.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace fencegate::api {

/// An item as docs/http-api.md shows it, behind what stands in `text`.
void append_history_item(std::string& text, const history_item& item);

/// The same as a JSON array.
void append_history_items(std::string& text, const std::vector<history_item>& items);

/// One page with its cursor.
std::string render_history(const history_page& page, bool ascending);

/// RFC 4180: the names of the columns, and an item as one record; each with its CRLF.
std::string_view history_csv_head();
void append_history_csv(std::string& text, const history_item& item);

/// An item as an event of text/event-stream, with its id.
void append_history_event(std::string& text, const history_item& item);

}  // namespace fencegate::api
