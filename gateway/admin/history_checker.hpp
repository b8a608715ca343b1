#pragma once

#include <gateway/domain/history_item.hpp>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::admin {

/// A row of the history that violates a promise.
struct finding {
    char promise = 'a';  ///< A letter of the list at class history_checker.
    std::int64_t id = 0;
    std::string resource;
    std::string reason;
};

/// Counts of the rows that were read.
struct history_counts {
    std::int64_t rows = 0, resources = 0, grants = 0, renewals = 0, ends = 0, writes = 0, bare_writes = 0,
                 direct_writes = 0, refusals = 0, fences = 0, repairs = 0;
    std::int64_t overlaps = 0;           ///< Pairs of leases that overlapped by the gateways' clocks.
    std::int64_t unrecorded_raises = 0;  ///< Refusals by a fence whose rise the history does not record.
    std::optional<std::int64_t> first_us, last_us;
};

/// A write whose token no earlier lease_granted has.
struct ungranted_write {
    std::string resource;
    std::int64_t token = 0;
    std::int64_t id = 0;     ///< Row of the first such write.
    std::int64_t at_us = 0;  ///< Time of that row.
};

/// The fence of a resource according to its last row.
struct last_fence {
    std::string resource;
    std::int64_t token = 0;
    std::int64_t id = 0;
};

/// Replays the history, one resource after the other, and reports the rows that violate a promise:
///   a  tokens grow from grant to grant, but that shared leases may have one token;
///   b  a write was accepted with a token that was granted, and not lower than any accepted before it, nor than the
///      floor of the storage generation;
///   c  where two leases overlapped, nothing of the older one was accepted after the newer one had written;
///   d  a write was refused as stale only with a token lower than the fence;
///   e  the fence fell only by an operator's repair with a reason.
/// Writes, refusals and fences of a resource are recorded under the lock of its guard row, so that their ids have the
/// order of their commits; except refusals of fenced reads, which are recorded after the lock was released, so that the
/// fence may have risen meanwhile. The fence follows from writes, raised fences and refusals by the guard; the fence in
/// a refusal of direct SQL may not have been committed. Tokens of another issuer, and those of direct SQL, need no
/// grant; a renewal shows a grant whose event is missing.
/// Events of leases have only a time, by the clock of the gateway that recorded them.
///
/// Limits: keeps 4,096 rows of a resource, to sort rows that arrive by time into the order of their ids, and its 1,024
///         newest grants; reports a write with an older token as ungranted_write.
class history_checker {
  public:
    /// `skew_us`: how far the clocks of two gateways may be apart. `changes`: of the storage generation, in the order
    /// of their ids.
    history_checker(std::int64_t skew_us, std::vector<generation_change> changes)
        : skew_us_(skew_us), changes_(std::move(changes)) {}

    /// Adds the next row; rows are ordered by resource, then time, then id.
    void add(const history_evidence& row);
    /// To be called after the last row.
    void finish() { end_resource(); }

    /// Returns the findings since the last call.
    std::vector<finding> take_findings() { return std::exchange(findings_, {}); }
    std::vector<ungranted_write> take_ungranted_writes() { return std::exchange(ungranted_writes_, {}); }
    std::vector<last_fence> take_fences() { return std::exchange(fences_, {}); }
    const history_counts& counts() const { return counts_; }

  private:
    struct grant {
        std::int64_t id = 0;
        std::int64_t at_us = 0;
        std::int64_t expires_us = 0;  ///< End of the lease by its gateway's clock; of shared ones the first.
        bool shared = false;
    };
    struct later_id {
        bool operator()(const history_evidence& a, const history_evidence& b) const { return a.id > b.id; }
    };

    void report(char promise, std::int64_t id, std::string reason);
    void begin_resource(const std::string& name);
    void end_resource();
    void add_grant(const history_evidence& row);
    void add_lease_event(const history_evidence& row);
    void add_guard_row(const history_evidence& row);
    void check_next_guard_row();
    void check_write(const history_evidence& row);
    void check_refusal(const history_evidence& row);
    void check_fence(const history_evidence& row);
    void set_fence(std::int64_t token, std::int64_t id);
    /// Returns the latest change before a row; null if there is none.
    const generation_change* find_change_before(std::int64_t id) const;

    std::int64_t skew_us_;
    std::vector<generation_change> changes_;
    history_counts counts_;
    std::vector<finding> findings_;
    std::vector<ungranted_write> ungranted_writes_;
    std::vector<last_fence> fences_;

    // The state of the current resource.
    std::string resource_;
    std::map<std::int64_t, grant> grants_;                      ///< By token.
    std::deque<std::pair<std::int64_t, grant>> recent_grants_;  ///< Granted within the clock skew of the last grant.
    std::optional<std::pair<std::int64_t, grant>> highest_older_grant_;  ///< The highest token of the grants before.
    std::map<std::int64_t, std::int64_t> overlapped_;                    ///< Older token → newer token.
    std::map<std::int64_t, ungranted_write> ungranted_by_token_;         ///< By token.
    std::priority_queue<history_evidence, std::vector<history_evidence>, later_id> reorder_queue_;
    std::int64_t last_guard_id_ = 0;
    std::optional<std::int64_t> fence_;
    std::int64_t fence_id_ = 0;
};

/// Why changes of a table were not checked, or not refused.
enum class open_reason {
    unprotected,  ///< unprotect() was called.
    observed,     ///< The mode is observe.
    fault,        ///< A check was missing, disabled or could be passed.
};

std::string_view to_string(open_reason reason);

/// A time in which changes of a table were not checked, or not refused. Times are in microseconds since 1970.
struct unprotected_span {
    std::string table;  ///< Empty: a fault that concerns no single table.
    open_reason reason = open_reason::unprotected;
    std::optional<std::int64_t> from_us;      ///< The earliest possible time; empty: before the first recorded change.
    std::optional<std::int64_t> found_at_us;  ///< When a gateway found it; empty: from_us is exact.
    std::optional<std::int64_t> to_us;        ///< Empty: at the end of the verified time it was still so.
    std::string principal;                    ///< Who made the change; empty: not known.
    std::vector<std::string> faults;          ///< The first faults_max of them.
};

/// Replays the changes of the guard, and returns when tables that had been protected were not.
///
/// Limits: keeps spans_max spans, and counts further ones.
class protection_spans {
  public:
    static constexpr std::size_t spans_max = 1'000;
    static constexpr std::size_t faults_max = 20;

    /// `from_us`: leaves out spans that ended before.
    explicit protection_spans(std::optional<std::int64_t> from_us) : from_us_(from_us) {}

    /// Adds the next change; changes are ordered by time, then id.
    void add(const guard_change& change);
    /// To be called after the last change: adds the spans that have not ended.
    void finish();

    /// Returns the spans, in the order in which they ended; those that have not ended come last.
    const std::vector<unprotected_span>& spans() const { return spans_; }
    std::int64_t left_out() const { return left_out_; }
    /// Returns each table that was ever protected, and since when; empty: since before the first recorded change.
    const std::map<std::string, std::optional<std::int64_t>>& protected_since() const { return protected_since_; }
    /// Returns the time of the first recorded change.
    std::optional<std::int64_t> recorded_since_us() const { return recorded_since_us_; }

  private:
    using open_key = std::pair<std::string, open_reason>;

    unprotected_span& open(const guard_change& change, open_reason reason, std::optional<std::int64_t> from_us);
    void close(const std::string& table, open_reason reason, std::int64_t at_us);
    /// Continues what is known of a table under its new name.
    void rename(const std::string& before, const std::string& table);
    void keep(unprotected_span span);

    std::optional<std::int64_t> from_us_;
    std::optional<std::int64_t> recorded_since_us_;
    std::map<std::string, std::optional<std::int64_t>> protected_since_;
    std::map<open_key, unprotected_span> open_;
    std::map<std::string, std::set<std::string>> open_faults_;  ///< By table.
    std::vector<unprotected_span> spans_;
    std::int64_t left_out_ = 0;
};

}  // namespace fencegate::admin
