#pragma once

#include <gateway/domain/history_item.hpp>
#include <gateway/pg/connection/session.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace fencegate::pg {

/// The items as fencing.record_events takes them. An item whose `detail` is no JSON object keeps it as {"text": …}.
std::string history_json(const std::vector<history_item>& items);

/// The call that adds them to the history, all or none; its parameter is history_json's.
const std::string& record_events_sql();

/// Adds one. Throws what session::exec throws; after session_lost it may be there.
void append_history(session& via, const history_item& item);

/// The same items as fencing.append_events takes them: an array a column, as its text; empty where no item has a value.
/// Order: at_us, event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail.
compat::parameters history_columns(const std::vector<history_item>& items);

/// Adds what the history does not have yet of the batch, all or none, and gives how many that were. Throws what
/// session::exec throws; whatever happened, the same batch may be sent again.
std::size_t append_history(session& via, const history_batch& batch);

}  // namespace fencegate::pg
