#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate {

/// Who made a call, as the history records it.
struct actor {
    std::string principal;  ///< The authenticated caller.
    std::string owner;      ///< The owner of the lease, which the caller chose; may be empty.
    std::string trace_id;   ///< From traceparent, 32 hexadecimal digits; may be empty.
    /// A JSON object whose members the event's detail gets: request_id, address, gateway and credential of the call.
    /// Empty: none, or read from the history.
    std::string origin;
};

/// Sets trace_id and origin from the origin of a request (http::request::origin).
inline void set_origin(actor& who, std::string_view text) {
    const auto end = std::min(text.find('{'), text.size());
    who.trace_id = text.substr(0, end);
    who.origin = text.substr(end);
}

/// Returns the JSON object with the members of both, of which each may be empty.
inline std::string join_objects(std::string_view first, std::string_view second) {
    if (first.empty() || second.empty()) return std::string(first.empty() ? second : first);
    if (second == "{}") return std::string(first);
    std::string out(first.substr(0, first.size() - 1));
    if (out.size() > 1) out += ',';
    return out.append(second.substr(1));
}

/// One row of the history. Event names as in docs/http-api.md.
///
/// The history is ordered by `at`, and by `id` where two rows have the same `at`. `id` alone is the order in which rows
/// reached PostgreSQL, and the events of a lease arrive in a batch, after the writes made under the lease.
struct history_item {
    std::int64_t id = 0;  ///< Assigned by PostgreSQL; 0 before that.
    std::chrono::system_clock::time_point at;
    std::string event;
    std::string resource;  ///< Empty: the event concerns no resource.
    std::optional<std::uint64_t> fencing_token;
    std::optional<std::uint64_t> last_fencing_token;
    actor initiator;
    std::string write_id;  ///< Empty: none.
    std::string detail;    ///< A JSON object as text; empty: none.
};

/// Consecutive items of a stream of events; the first has the sequence number `first_sequence`. By its number each item
/// is added to the history once, however often the batch is sent.
struct history_batch {
    std::string stream;                ///< A UUID that the gateway makes when it starts.
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

/// Filters of GET /v1/history; an empty field does not filter. `event` is one or several names, separated by commas.
struct history_query {
    std::optional<std::string> resource, resource_prefix, event, owner, principal, write_id, trace_id;
    std::optional<std::uint64_t> token_min, token_max;
    std::optional<std::chrono::system_clock::time_point> from, to;  ///< from <= at < to
    bool ascending = false;
    std::size_t limit = 100;                ///< Items in a page: 1 to 1,000.
    std::optional<history_position> after;  ///< From the cursor: continue after this item in the chosen order.
    /// Replaces the order by `at`: rows with an id above the first value and not above the second, in the order of id.
    std::optional<std::pair<std::int64_t, std::int64_t>> ids;
    /// Whether `detail` has what refused writes wanted, which only those may see who may read every row.
    bool with_wanted = false;

    /// Whether rows are left out by what no index finds in the order of the answer.
    bool is_filtered() const { return resource_prefix || event || owner || principal || token_min || token_max; }
    bool has_every_row() const { return !is_filtered() && !resource && !write_id && !trace_id && !from && !to; }
};

/// Whether a page may require reading many rows that it does not return: no index leads directly to the rows that the
/// filters ask for. A trace_id does not help: callers choose it, so any number of rows may have it.
inline bool is_search(const history_query& query) {
    return query.is_filtered() && !query.ids && !query.write_id;
}

struct history_page {
    std::vector<history_item> items;
    bool more = false;  ///< Whether further items follow.
    /// With history_query::ids: all rows up to this id were read, unless `more`.
    std::int64_t read_to = 0;
};

/// One changed row of a table whose changes are recorded (fencing.record_changes). `key`, `old_values` and `new_values`
/// are JSON objects as text; empty: none.
struct change_item {
    std::int64_t id = 0;
    std::chrono::system_clock::time_point at;
    std::string table, operation, key, old_values, new_values;
    std::string resource;  ///< Empty: the change concerns no resource.
    std::optional<std::uint64_t> fencing_token;
    std::string write_id;  ///< Empty: direct SQL.
    std::string principal;
    bool direct = false;      ///< By direct SQL, not by a write of a gateway.
    std::string application;  ///< Of direct SQL; empty: none.
};

inline history_position position_of(const change_item& item) {
    return {std::chrono::floor<std::chrono::microseconds>(item.at.time_since_epoch()).count(), item.id};
}

/// Filters of GET /v1/changes: those of the history without event, owner and trace_id, and its own. `key` is a JSON
/// object.
struct change_query : history_query {
    std::optional<std::string> table, key, column;

    bool is_found_at_once() const { return resource || write_id || key; }
};

/// As for the history.
inline bool is_search(const change_query& query) {
    return (query.is_filtered() || query.table || query.column) && !query.write_id && !query.key;
}

struct change_page {
    std::vector<change_item> items;
    bool more = false;
};

/// A signed digest of the history, as a JSON object with its signature.
struct digest_item {
    std::int64_t id = 0;  ///< Its number.
    std::string line;
};

inline history_position position_of(const digest_item& item) {
    return {0, item.id};
}

/// Only with the order, the limit and the position.
struct digest_query : history_query {};

struct digest_page {
    std::vector<digest_item> items;
    bool more = false;
};

/// What the history has of a lease.
struct recorded_lease {
    bool ended = false;  ///< It was released or revoked, or its expiry is recorded.
    std::optional<std::chrono::system_clock::time_point> until;  ///< By its grant and renewals; empty: none is there.
    bool granted = false;                                        ///< Its lease_granted is there, if that was asked for.
};

/// The end of the history at one moment; see fencing.history_tail().
struct history_tail {
    std::int64_t last_id = 0;          ///< The last id that was assigned.
    std::vector<std::string> writers;  ///< Transactions that may still commit rows with ids up to last_id.
};

/// GET /v1/history/summary. Buckets begin at multiples of `bucket` since 1970 by a clock that is `offset` ahead of UTC.
struct history_summary_query {
    std::chrono::system_clock::time_point from, to;  ///< from <= at < to
    std::chrono::milliseconds bucket{};
    std::chrono::minutes offset{0};
    std::optional<std::string> resource_prefix;
};

struct history_count {
    std::chrono::system_clock::time_point bucket;  ///< The bucket's beginning.
    std::string event;
    std::int64_t count = 0;
};

/// Maximum number of events of a resource that are counted: the newest ones; for one token of the resource the oldest
/// ones.
inline constexpr std::int64_t resource_events_counted_max = 100'000;

/// What PostgreSQL knows about a resource.
struct resource_facts {
    std::uint64_t last_fencing_token = 0;  ///< The fence; 0: no token was seen.
    std::uint64_t last_read_token = 0;     ///< The read fence; 0: nobody has read by a shared lease.
    std::vector<std::pair<std::string, std::int64_t>> counts;  ///< Number of events by type.
    bool all_counted = true;                                   ///< False: there are more events than were counted.
    std::vector<history_item> last_events;                     ///< The newest first.
};

/// What a call of fencing.keep_history() did.
struct history_upkeep {
    int made = 0, dropped = 0;  ///< Partitions.
    int remaining = 0;          ///< Partitions that further calls have to drop.
};

/// A row of the history, as far as `fencegate verify` needs it.
struct history_evidence {
    std::int64_t id = 0;
    std::int64_t at_us = 0;  ///< Microseconds since 1970.
    std::string event;
    std::string resource;
    std::optional<std::int64_t> token;       ///< fencing_token
    std::optional<std::int64_t> last_token;  ///< last_fencing_token: the fence after the event, or that refused it.
    std::optional<std::int64_t> ttl_ms;      ///< From the detail; leases only.
    bool repair = false;                     ///< fence_raised by an operator, which may lower the fence.
    bool has_reason = false;                 ///< The detail has a reason.
    bool observed = false;                   ///< The table is in observe mode, which let the change pass.
    bool bare = false;                       ///< Written with a token of another issuer (detail.bare_token).
    bool direct = false;                     ///< Written by a caller of enter() (detail.direct).
    bool refused_otherwise = false;          ///< Refused for another reason than a fence above its token.
    bool shared = false;                     ///< Of a shared lease, or of a read under one.
    bool recorded_later = false;             ///< A refusal recorded after the lock of the guard row was released.
    bool decided_by_guard = false;           ///< begin_write decided it under the guard's lock: the fence is committed.
};

/// A guard_changed of the history that concerns whether changes of a table are checked. Times are in microseconds since
/// 1970.
struct guard_change {
    std::int64_t id = 0;
    std::int64_t at_us = 0;
    std::string principal;                      ///< Empty: not known.
    std::string action;                         ///< protect, unprotect, fault_found or fault_gone.
    std::string table;                          ///< With its schema; empty: a fault that concerns no single table.
    std::string renamed_from;                   ///< protect: the table's name at the call before; empty: the same.
    std::string mode;                           ///< protect: the new mode.
    std::string was;                            ///< protect, unprotect: the mode before; empty: it was not protected.
    std::optional<std::int64_t> not_before_us;  ///< fault_found: the faults may be as old as this.
    std::vector<std::string> faults;
};

/// A change of the storage generation in the history: from this row on tokens below the floor are refused.
struct generation_change {
    std::int64_t id = 0;
    std::int64_t floor = 0;
    /// The time of the last accepted write before it, in microseconds since 1970; 0: there is none. Between the
    /// failover and the change no write is accepted, but other events are recorded.
    std::int64_t last_write_at_us = 0;
};

}  // namespace fencegate
