#pragma once

#include <gateway/domain/history_evidence.hpp>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::admin {

/// A row that breaks a promise.
struct finding {
    char promise = 'a';  ///< Of the list at class history_checker.
    std::int64_t id = 0;
    std::string resource;
    std::string why;
};

/// What was looked at.
struct tally {
    std::int64_t rows = 0, resources = 0, grants = 0, renewals = 0, ends = 0, writes = 0, bare_writes = 0,
                 direct_writes = 0, refusals = 0, fences = 0, repairs = 0;
    std::int64_t overlaps = 0;       ///< Pairs of leases that overlapped by their clocks.
    std::int64_t raised_unseen = 0;  ///< Refusals by a fence that the history does not show rising.
    std::optional<std::int64_t> first_us, last_us;
};

/// A write whose token the rows so far do not grant.
struct unknown_token {
    std::string resource;
    std::int64_t token = 0;
    std::int64_t id = 0;     ///< Of the first such write.
    std::int64_t at_us = 0;  ///< Of the same.
};

/// The fence of a resource as its last row shows it.
struct last_fence {
    std::string resource;
    std::int64_t token = 0;
    std::int64_t id = 0;
};

/// Replays the history, one resource after the other, and names the rows that break a promise:
///   a  tokens grow from grant to grant;
///   b  a write was accepted with a token that was granted, and not lower than any accepted before it;
///   c  where two leases overlapped, nothing of the older one was accepted after the newer one had written;
///   d  a write was refused as stale only with a token lower than the fence;
///   e  the fence fell only by an operator's repair with a reason.
/// Writes, refusals and fences of a resource are recorded under the lock of its guard row, so that their ids have the
/// order of their commits. The fence is what writes and fences left, and what the guard refused by: only one that a
/// refusal of direct SQL names need not have been committed. Tokens of another issuer, and those of direct SQL, need no
/// grant. Events of leases have only their time, by the clock of the gateway that recorded them.
///
/// Limits:  of a resource it keeps 4,096 rows, to bring those in the order of their times into that of their ids, and
///          the 1,024 newest grants; a write with an older token is asked about as unknown_token.
class history_checker {
  public:
    /// `skew_us`: how far the clocks of two gateways may be apart.
    explicit history_checker(std::int64_t skew_us) : skew_us_(skew_us) {}

    /// Rows by resource, then at, then id.
    void add(const history_evidence& row);
    /// Behind the last row.
    void finish() { end_resource(); }

    /// Found since the last call.
    std::vector<finding> take_findings() { return std::exchange(findings_, {}); }
    std::vector<unknown_token> take_unknown() { return std::exchange(unknown_, {}); }
    std::vector<last_fence> take_fences() { return std::exchange(fences_, {}); }
    const tally& counts() const { return counts_; }

  private:
    struct grant {
        std::int64_t id = 0;
        std::int64_t at_us = 0;
        std::int64_t until_us = 0;  ///< When it runs out or ran out, by its own clock.
    };
    struct later_id {
        bool operator()(const history_evidence& a, const history_evidence& b) const { return a.id > b.id; }
    };

    void find(char promise, std::int64_t id, std::string why);
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

    std::int64_t skew_us_;
    tally counts_;
    std::vector<finding> findings_;
    std::vector<unknown_token> unknown_;
    std::vector<last_fence> fences_;

    // Of the resource that is under way.
    std::string resource_;
    std::map<std::int64_t, grant> grants_;                   ///< By token.
    std::deque<std::pair<std::int64_t, grant>> fresh_;       ///< Granted within the skew, not settled yet.
    std::optional<std::pair<std::int64_t, grant>> settled_;  ///< The highest token of those before.
    std::map<std::int64_t, std::int64_t> overlapped_;        ///< Older token → newer token.
    std::map<std::int64_t, unknown_token> unknown_here_;     ///< By token.
    std::priority_queue<history_evidence, std::vector<history_evidence>, later_id> waiting_;
    std::int64_t last_guard_id_ = 0;
    std::optional<std::int64_t> fence_;
    std::int64_t fence_id_ = 0;
};

}  // namespace fencegate::admin
