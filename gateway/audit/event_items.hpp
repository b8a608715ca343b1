#pragma once

#include <gateway/domain/history_item.hpp>

#include <lockcore/events.hpp>

#include <vector>

namespace fencegate::audit {

/// Returns the history's rows for an event of lockcore: one for each resource, or one without a resource for an event
/// of a node.
std::vector<history_item> history_items(const lockcore::event& e);

}  // namespace fencegate::audit
