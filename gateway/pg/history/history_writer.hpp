#pragma once

#include <gateway/domain/history_item.hpp>
#include <gateway/pg/connection/session_slot.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace fencegate::pg {

/// Returns the items as fencing.record_events takes them. A `detail` that is no JSON object becomes {"text": …}.
std::string history_json(const std::vector<history_item>& items);

/// Returns the statement that adds items to the history, all or none; its parameter comes from history_json.
const std::string& record_events_sql();

/// Adds one item. Throws as session::exec does; after session_lost the item may have been added.
void append_history(session& session, const history_item& item);

/// Returns the items as fencing.append_events takes them: for each column the text of an array, empty where no item has
/// a value. Order: at_us, event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id,
/// detail.
compat::parameters history_columns(const std::vector<history_item>& items);

/// Adds the items of the batch that the history does not have yet, all or none.
///
/// Out:    the number of items added.
/// Errors: unprocessable and constraint_violation where the content of an item is at fault. After any other the same
///         batch may be sent again, with outcome_unknown where the connection broke. Throws as session::exec does.
result<std::size_t> append_history(session_slot& slot, const history_batch& batch);

}  // namespace fencegate::pg
