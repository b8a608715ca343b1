#pragma once

#include <gateway/domain/history_item.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace fencegate::api {

/// The position at which a page of the history ended. Opaque to callers: base64url of order, at and id,
/// which callers get and send marked with the cell (lockcore::mark_cell).
struct history_cursor {
    bool ascending = false;
    history_position last;
    friend bool operator==(const history_cursor&, const history_cursor&) = default;
};

std::string to_text(history_cursor c);
/// Parses the text of a cursor. Out: empty if to_text did not make it.
std::optional<history_cursor> parse_cursor(std::string_view text);

}  // namespace fencegate::api
