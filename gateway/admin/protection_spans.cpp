#include <gateway/admin/protection_spans.hpp>

#include <utility>

namespace fencegate::admin {

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
