#include <gateway/admin/history_checker.hpp>

#include <lockcore/types.hpp>

#include <algorithm>
#include <utility>

namespace fencegate::admin {
namespace {

constexpr std::size_t reorder_max = 4'096;
constexpr std::size_t grants_max = 1'024;
constexpr std::int64_t us_per_ms = 1'000;

std::string text(std::int64_t number) {
    return std::to_string(number);
}

}  // namespace

void history_checker::add(const history_evidence& row) {
    if (row.resource != resource_) {
        end_resource();
        begin_resource(row.resource);
    }
    ++counts_.rows;
    counts_.first_us = std::min(counts_.first_us.value_or(row.at_us), row.at_us);
    counts_.last_us = std::max(counts_.last_us.value_or(row.at_us), row.at_us);
    if (row.event == "lease_granted") {
        add_grant(row);
    } else if (row.event.starts_with("lease_")) {
        add_lease_event(row);
    } else if (row.event == "write_applied" || row.event == "write_rejected" || row.event == "fence_raised") {
        add_guard_row(row);
    }
}

void history_checker::report(char promise, std::int64_t id, std::string reason) {
    findings_.push_back({promise, id, resource_, std::move(reason)});
}

void history_checker::begin_resource(const std::string& name) {
    resource_ = name;
    ++counts_.resources;
    grants_.clear();
    recent_grants_.clear();
    highest_older_grant_.reset();
    overlapped_.clear();
    last_guard_id_ = 0;
    fence_.reset();
    fence_id_ = 0;
}

void history_checker::end_resource() {
    while (!reorder_queue_.empty())
        check_next_guard_row();
    for (auto& [token, write] : ungranted_by_token_)
        ungranted_writes_.push_back(std::move(write));
    ungranted_by_token_.clear();
    if (fence_) fences_.push_back({resource_, *fence_, fence_id_});
    fence_.reset();
}

void history_checker::add_grant(const history_evidence& row) {
    ++counts_.grants;
    if (!row.token) return report('a', row.id, "a lease was granted without a token");
    const std::int64_t token = *row.token;
    const auto same = grants_.find(token);
    if (same != grants_.end() && !(row.shared && same->second.shared))
        return report('a', row.id, "token " + text(token) + " was granted before, in row " + text(same->second.id));
    while (!recent_grants_.empty() && recent_grants_.front().second.at_us < row.at_us - skew_us_) {
        if (!highest_older_grant_ || highest_older_grant_->first < recent_grants_.front().first)
            highest_older_grant_ = recent_grants_.front();
        recent_grants_.pop_front();
    }
    const bool shares = row.shared && highest_older_grant_ && highest_older_grant_->second.shared;
    if (highest_older_grant_ && token <= highest_older_grant_->first - (shares ? 1 : 0))
        report('a', row.id,
               "token " + text(token) + " was granted after token " + text(highest_older_grant_->first) + " of row " +
                   text(highest_older_grant_->second.id));
    grant added;
    added.id = row.id;
    added.shared = row.shared;
    added.at_us = row.at_us;
    added.expires_us = row.at_us + row.ttl_ms.value_or(0) * us_per_ms;
    // Compares with the grant of the next lower token.
    if (const auto next = grants_.lower_bound(token); next != grants_.begin()) {
        const auto& [older_token, older] = *std::prev(next);
        if (older.expires_us > row.at_us + skew_us_ && !(row.shared && older.shared)) {
            ++counts_.overlaps;
            overlapped_[older_token] = token;
        }
    }
    recent_grants_.emplace_back(token, added);
    grants_.emplace(token, added);
    if (grants_.size() > grants_max) grants_.erase(grants_.begin());
    if (overlapped_.size() > grants_max) overlapped_.erase(overlapped_.begin());
    ungranted_by_token_.erase(token);
}

void history_checker::add_lease_event(const history_evidence& row) {
    const bool renewed = row.event == "lease_renewed";
    const bool ended = row.event == "lease_released" || row.event == "lease_revoked" || row.event == "lease_expired";
    counts_.renewals += renewed ? 1 : 0;
    counts_.ends += ended ? 1 : 0;
    const auto found = row.token ? grants_.find(*row.token) : grants_.end();
    if (found == grants_.end()) return;
    std::int64_t& expires_us = found->second.expires_us;
    if (renewed) expires_us = std::max(expires_us, row.at_us + row.ttl_ms.value_or(0) * us_per_ms);
    if (ended) expires_us = std::min(expires_us, row.at_us);
}

void history_checker::add_guard_row(const history_evidence& row) {
    // Refusals in observe mode, of changes without a token and for other reasons do not depend on the fence.
    if (row.event == "write_rejected" && (row.observed || !row.token || row.refused_otherwise)) return;
    if (row.event == "write_applied" && row.token && !row.bare && !row.direct && !grants_.contains(*row.token))
        ungranted_by_token_.try_emplace(*row.token, ungranted_write{resource_, *row.token, row.id, row.at_us});
    reorder_queue_.push(row);
    if (reorder_queue_.size() > reorder_max) check_next_guard_row();
}

void history_checker::check_next_guard_row() {
    const history_evidence row = reorder_queue_.top();
    reorder_queue_.pop();
    if (row.id < last_guard_id_)
        return report(
            'e', row.id,
            "its time is much later than that of row " + text(last_guard_id_) +
                ", which was recorded after it: the server's clock was set back, and this row was not checked");
    last_guard_id_ = row.id;
    if (row.event == "write_applied") {
        check_write(row);
    } else if (row.event == "write_rejected") {
        check_refusal(row);
    } else {
        check_fence(row);
    }
}

void history_checker::check_write(const history_evidence& row) {
    ++counts_.writes;
    counts_.bare_writes += row.bare ? 1 : 0;
    counts_.direct_writes += row.direct ? 1 : 0;
    if (!row.token) return report('b', row.id, "a write was accepted without a token");
    const std::int64_t token = *row.token;
    if (row.last_token != row.token)
        report('b', row.id,
               "a write was accepted with token " + text(token) + ", but the row names " +
                   (row.last_token ? "the fence " + text(*row.last_token) : "no fence"));
    if (const auto granted = grants_.find(token);
        !row.direct && granted != grants_.end() && row.at_us < granted->second.at_us - skew_us_)
        report('b', row.id,
               "a write was accepted with token " + text(token) + " before row " + text(granted->second.id) +
                   " granted it");
    if (const auto* change = find_change_before(row.id); change && token < change->floor)
        report('b', row.id,
               "a write was accepted with token " + text(token) + " below the floor " + text(change->floor) +
                   " that row " + text(change->id) + " had set");
    if (fence_ && token < *fence_) {
        const auto overlap = overlapped_.find(token);
        const bool leases_overlap = overlap != overlapped_.end() && overlap->second <= *fence_;
        report(leases_overlap ? 'c' : 'b', row.id,
               "a write was accepted with token " + text(token) + " although row " + text(fence_id_) +
                   " had raised the fence to " + text(*fence_) +
                   (leases_overlap ? "; its lease overlapped with that of token " + text(overlap->second) : ""));
        return;
    }
    set_fence(token, row.id);
}

void history_checker::check_refusal(const history_evidence& row) {
    ++counts_.refusals;
    if (!row.last_token || *row.token >= *row.last_token)
        return report(
            'd', row.id,
            "a write with token " + text(*row.token) + " was refused, although " +
                (row.last_token ? "the fence " + text(*row.last_token) + " is not higher" : "the row names no fence"));
    // The floor refuses tokens of every resource, and is the fence of none. The row of its change may have been dropped
    // with its partition, but a floor is the lower bound of an epoch, which is no granted token.
    if (*row.last_token % static_cast<std::int64_t>(lockcore::tokens_per_epoch) == 0) return;
    // A shared read is refused by the last writer's token alone, though others may have read with a higher one.
    if (fence_ && *row.last_token < *fence_ && !row.recorded_later && !row.shared)
        return report('e', row.id,
                      "the fence that refused was " + text(*row.last_token) + ", although row " + text(fence_id_) +
                          " had raised it to " + text(*fence_));
    if (fence_ && *row.last_token > *fence_) ++counts_.unrecorded_raises;
    // A refusal of direct SQL may name a fence that its own transaction raised and rolled back.
    if (row.decided_by_guard && fence_) set_fence(*row.last_token, row.id);
}

void history_checker::check_fence(const history_evidence& row) {
    ++counts_.fences;
    if (!row.last_token) return report('e', row.id, "a fence was raised, but the row does not say to which token");
    if (row.repair) {
        ++counts_.repairs;
        if (!row.has_reason) report('e', row.id, "a fence was repaired without a reason");
    } else if (fence_ && *row.last_token < *fence_) {
        report('e', row.id,
               "the fence fell to " + text(*row.last_token) + " without a repair; row " + text(fence_id_) +
                   " had raised it to " + text(*fence_));
        return;
    }
    set_fence(*row.last_token, row.id);
}

const generation_change* history_checker::find_change_before(std::int64_t id) const {
    const auto next = std::ranges::lower_bound(changes_, id, {}, &generation_change::id);
    return next == changes_.begin() ? nullptr : &*std::prev(next);
}

void history_checker::set_fence(std::int64_t token, std::int64_t id) {
    if (!fence_ || *fence_ != token) fence_id_ = id;
    fence_ = token;
}

std::string_view to_string(open_reason reason) {
    switch (reason) {
        case open_reason::unprotected:
            return "unprotected";
        case open_reason::observed:
            return "observed";
        case open_reason::fault:
            return "fault";
    }
    return "";
}

void protection_spans::add(const guard_change& change) {
    if (!recorded_since_us_) recorded_since_us_ = change.at_us;
    if (change.action == "protect") {
        if (!change.renamed_from.empty()) rename(change.renamed_from, change.table);
        // Its first record may be newer than its protection: `was` says so.
        const bool known = protected_since_.contains(change.table);
        if (!known && change.was.empty()) protected_since_[change.table] = change.at_us;
        if (!known && !change.was.empty()) protected_since_[change.table] = std::nullopt;
        if (!known && change.was == "observe") open(change, open_reason::observed, std::nullopt);
        close(change.table, open_reason::unprotected, change.at_us);
        if (change.mode == "observe") {
            open(change, open_reason::observed, change.at_us);
        } else {
            close(change.table, open_reason::observed, change.at_us);
        }
    } else if (change.action == "unprotect") {
        if (!change.was.empty()) protected_since_.try_emplace(change.table, std::nullopt);
        open(change, open_reason::unprotected, change.at_us);
        close(change.table, open_reason::observed, change.at_us);
    } else if (change.action == "fault_found") {
        auto& span = open(change, open_reason::fault, change.not_before_us.value_or(change.at_us));
        auto& current = open_faults_[change.table];
        for (const auto& fault : change.faults) {
            if (current.insert(fault).second && span.faults.size() < faults_max) span.faults.push_back(fault);
        }
    } else if (change.action == "fault_gone") {
        auto& current = open_faults_[change.table];
        for (const auto& fault : change.faults)
            current.erase(fault);
        if (current.empty()) close(change.table, open_reason::fault, change.at_us);
    }
}

void protection_spans::finish() {
    for (auto& [key, span] : open_)
        keep(std::move(span));
    open_.clear();
}

unprotected_span& protection_spans::open(const guard_change& change, open_reason reason,
                                         std::optional<std::int64_t> from_us) {
    const auto [found, added] = open_.try_emplace({change.table, reason});
    auto& span = found->second;
    if (added) {
        span.table = change.table;
        span.reason = reason;
        span.from_us = from_us;
        if (change.not_before_us) span.found_at_us = change.at_us;
        span.principal = change.principal;
    }
    return span;
}

void protection_spans::close(const std::string& table, open_reason reason, std::int64_t at_us) {
    const auto found = open_.find({table, reason});
    if (found == open_.end()) return;
    found->second.to_us = at_us;
    if (!from_us_ || at_us > *from_us_) keep(std::move(found->second));
    open_.erase(found);
}

void protection_spans::rename(const std::string& before, const std::string& table) {
    if (auto since = protected_since_.extract(before)) {
        since.key() = table;
        protected_since_.insert(std::move(since));
    }
    if (auto span = open_.extract({before, open_reason::observed})) {
        span.key().first = span.mapped().table = table;
        open_.insert(std::move(span));
    }
}

void protection_spans::keep(unprotected_span span) {
    if (spans_.size() == spans_max) {
        ++left_out_;
    } else {
        spans_.push_back(std::move(span));
    }
}

}  // namespace fencegate::admin
