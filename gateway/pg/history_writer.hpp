#pragma once

#include <gateway/domain/history_item.hpp>
#include <gateway/pg/session.hpp>

#include <string>
#include <vector>

namespace fencegate::pg {

/// The items as fencing.record_events takes them. An item whose `detail` is no JSON object keeps it as {"text": …}.
std::string history_json(const std::vector<history_item>& items);

/// Adds them to the history, all or none. Throws what session::exec throws; after session_lost they may be there.
void append_history(session& via, const std::vector<history_item>& items);

}  // namespace fencegate::pg
