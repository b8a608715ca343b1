#pragma once

#include <gateway/domain/history_item.hpp>

#include <lockcore/events.hpp>

#include <vector>

namespace fencegate::audit {

/// The rows of history for an event of lockcore: one a resource, or one without a resource for events of a node.
std::vector<history_item> history_items(const lockcore::event& e);

}  // namespace fencegate::audit
