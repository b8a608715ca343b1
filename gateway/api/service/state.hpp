#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>
#include <gateway/metrics/watches.hpp>

#include <lockcore/nodes.hpp>

#include <optional>
#include <string>
#include <vector>

namespace fencegate::api {

/// Returns the name that the HTTP contract has for a state. It has none for a node that is connected and not identified
/// yet: that is `unreachable`, and its detail says more.
const char* node_state_name(lockcore::node_state state);

/// Returns the JSON of GET /v1/nodes.
///
/// In: `leaks`: the latest search for leaked leases; empty before the first. `guard`: the latest state of the guard;
///     empty before the first. `key_ids`: of the keys whose lease_ids this gateway accepts, first the one that signs.
///     `cell`: that of this gateway.
std::string render_nodes(const std::vector<lockcore::node_status>& nodes,
                         const std::optional<metrics::leak_watch::finding>& leaks,
                         const std::optional<metrics::guard_watch::finding>& guard,
                         const std::vector<std::string>& key_ids, lockcore::cell_id cell);

/// Returns the JSON of GET /v1/guard.
std::string render_guard_state(const metrics::guard_watch::finding& found);

}  // namespace fencegate::api
