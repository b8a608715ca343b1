#pragma once

#include <gateway/domain/actor.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencegate {

/// One row of the history. Event names as in docs/http-api.md.
///
/// The history is ordered by `at`, and by `id` where two have the same: `id` alone is the order in which rows reached
/// PostgreSQL, where the events of a lease come in a batch after the writes made under it.
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

/// Items that follow one another in a stream of events: the first has the number `first_sequence`, and so on. With its
/// number each is added to the history once, however often the batch is sent.
struct history_batch {
    std::string stream;                ///< A UUID, made up at the gateway's start.
    std::uint64_t first_sequence = 1;  ///< From 1.
    std::vector<history_item> items;
};

/// Where a page of the history ended: `at` and `id` of its last item.
struct history_position {
    std::int64_t at_us = 0;  ///< Microseconds since 1970.
    std::int64_t id = 0;
    friend bool operator==(const history_position&, const history_position&) = default;
};

inline history_position position_of(const history_item& item) {
    return {std::chrono::floor<std::chrono::microseconds>(item.at.time_since_epoch()).count(), item.id};
}

/// Filters of GET /v1/history; an empty field does not filter.
struct history_query {
    std::optional<std::string> resource, resource_prefix, event, owner, principal, write_id, trace_id;
    std::optional<std::uint64_t> token_min, token_max;
    std::optional<std::chrono::system_clock::time_point> from, to;  ///< from <= at < to
    bool ascending = false;
    std::size_t limit = 100;                ///< Of a page: 1 to 1,000.
    std::optional<history_position> after;  ///< From the cursor: continue behind this item in the chosen order.
    /// In place of the order by `at`: rows with an id above the first and not above the second, in the order of id.
    std::optional<std::pair<std::int64_t, std::int64_t>> ids;
};

/// Whether a page of it may have to read through much of the history that it does not give: filters without an index
/// that finds their rows at once.
inline bool is_search(const history_query& query) {
    const bool found_at_once = query.ids || query.write_id || query.trace_id;
    return !found_at_once && (query.resource_prefix || query.event || query.owner || query.principal ||
                              query.token_min || query.token_max);
}

struct history_page {
    std::vector<history_item> items;
    bool more = false;  ///< Whether items follow.
};

/// How far the history goes at a moment; see fencing.history_tail().
struct history_tail {
    std::int64_t last_id = 0;          ///< The last id that was given out.
    std::vector<std::string> writers;  ///< Transactions that may still commit rows with ids up to it.
};

/// GET /v1/history/summary. Buckets begin at multiples of `bucket` since 1970.
struct history_summary_query {
    std::chrono::system_clock::time_point from, to;  ///< from <= at < to
    std::chrono::milliseconds bucket{};
    std::optional<std::string> resource_prefix;
};

struct history_count {
    std::chrono::system_clock::time_point bucket;  ///< Its beginning.
    std::string event;
    std::int64_t count = 0;
};

/// Most events of a resource that are counted, the newest; of one of its tokens the oldest.
inline constexpr std::int64_t resource_events_counted_max = 100'000;

/// What PostgreSQL knows of a resource.
struct resource_facts {
    std::uint64_t last_fencing_token = 0;                      ///< The fence; 0: none was seen.
    std::vector<std::pair<std::string, std::int64_t>> counts;  ///< By event.
    bool all_counted = true;                                   ///< False: there are more than are counted.
};

/// What a call for the upkeep of the history did; see fencing.keep_history().
struct history_upkeep {
    int made = 0, dropped = 0;  ///< Partitions.
    int remaining = 0;          ///< To be dropped by further calls.
};

}  // namespace fencegate
