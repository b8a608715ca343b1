#pragma once

#include <gateway/domain/actor.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fencegate {

/// One row of the history. Event names as in API.md.
struct history_item {
    std::int64_t id = 0;  ///< Given by PostgreSQL; 0 before.
    std::chrono::system_clock::time_point at;
    std::string event;
    std::string resource;  ///< Empty: concerns no resource.
    std::optional<std::uint64_t> fencing_token;
    std::optional<std::uint64_t> last_fencing_token;
    actor by;
    std::string write_id;  ///< Empty: none.
    std::string detail;    ///< A JSON object as text; empty: none.
};

/// Filters of GET /v1/history; an empty field does not filter.
struct history_query {
    std::optional<std::string> resource, resource_prefix, event, owner, principal, write_id, trace_id;
    std::optional<std::uint64_t> token_min, token_max;
    std::optional<std::chrono::system_clock::time_point> from, to;  ///< from <= at < to
    bool ascending = false;
    std::size_t limit = 100;               ///< 1 to 1,000
    std::optional<std::int64_t> after_id;  ///< From the cursor: continue behind this id in the chosen order.
};

struct history_page {
    std::vector<history_item> items;
    bool more = false;  ///< Whether items follow.
};

}  // namespace fencegate
