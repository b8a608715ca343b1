#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/executor/job_queue.hpp>

#include <lockcore/invariant.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace fencegate::pg {

const std::string& job::principal() const {
    static const std::string gateway;
    return gateway;
}

std::optional<failure> queued_jobs::try_add(const std::string& principal) {
    const std::lock_guard lock(mutex_);
    if (principal.empty()) {
        if (value_ >= most_ + own_places) return queue_full_failure();
        ++value_;
        ++of_gateway_;
        return std::nullopt;
    }
    if (value_ - of_gateway_ >= most_) return queue_full_failure();
    if (!by_principal_.try_add(principal, 1, std::max<std::size_t>(most_ / 2, 1))) {
        failure out = make_failure(errc::too_many_requests, "Too many calls of this principal wait for PostgreSQL.");
        out.retry_after = retry_after_unavailable;
        return out;
    }
    ++value_;
    return std::nullopt;
}

void queued_jobs::remove(const std::string& principal) {
    const std::lock_guard lock(mutex_);
    LOCKCORE_INVARIANT(value_ > 0);
    --value_;
    if (principal.empty()) {
        LOCKCORE_INVARIANT(of_gateway_ > 0);
        --of_gateway_;
        return;
    }
    by_principal_.remove(principal);
}

std::size_t queued_jobs::value() const {
    const std::lock_guard lock(mutex_);
    return value_;
}

void job_queue::push(job_ptr work) {
    const auto [found, is_new] = by_principal_.try_emplace(work->principal());
    if (is_new) {
        turns_.push_back({work->principal(), {}});
        found->second = std::prev(turns_.end());
    }
    found->second->jobs.push_back(std::move(work));
    ++size_;
}

job_queue::job_ptr job_queue::pop() {
    LOCKCORE_INVARIANT(!turns_.empty());
    const auto first = turns_.begin();
    job_ptr out = std::move(first->jobs.front());
    first->jobs.pop_front();
    --size_;
    if (first->jobs.empty()) {
        by_principal_.erase(first->principal);
        turns_.erase(first);
    } else {
        turns_.splice(turns_.end(), turns_, first);
    }
    return out;
}

std::vector<job_queue::job_ptr> job_queue::take_all() {
    std::vector<job_ptr> out;
    while (!empty())
        out.push_back(pop());
    return out;
}

std::vector<job_queue::job_ptr> job_queue::take_late(deadline now) {
    std::vector<job_ptr> out;
    for (auto entry = turns_.begin(); entry != turns_.end();) {
        std::erase_if(entry->jobs, [&](job_ptr& work) {
            if (work->until() > now) return false;
            out.push_back(std::move(work));
            return true;
        });
        if (entry->jobs.empty()) by_principal_.erase(entry->principal);
        entry = entry->jobs.empty() ? turns_.erase(entry) : std::next(entry);
    }
    size_ -= out.size();
    return out;
}

}  // namespace fencegate::pg
