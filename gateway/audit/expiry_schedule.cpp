#include <gateway/audit/expiry_schedule.hpp>

#include <algorithm>

namespace fencegate::audit {
namespace {

/// Returns the key of a lease: its token and its first resource.
std::string key_of(const std::vector<lockcore::resource_name>& resources, lockcore::fencing_token token) {
    return std::to_string(lockcore::value_of(token)) + ' ' + resources.front().str();
}

}  // namespace

void expiry_schedule::schedule(const std::string& key, entry& watched) {
    if (watched.due) due_.erase({*watched.due, key});
    watched.due = watched.check_at;
    due_.emplace(*watched.due, key);
}

void expiry_schedule::add_lease(watched_lease lease) {
    const std::lock_guard lock(mutex_);
    const auto key = key_of(lease.resources, lease.token);
    if (const auto found = leases_.find(key); found != leases_.end()) {
        entry& watched = found->second;
        watched.lease.since = lease.since;
        watched.lease.until = std::max(watched.lease.until, lease.until);  // a renewal never shortens
        watched.check_at = std::max(watched.check_at, lease.until);        // take_due() schedules it anew
        return;
    }
    if (leases_.size() >= leases_max) return;
    entry& watched = leases_[key];
    watched.check_at = lease.until;
    watched.lease = std::move(lease);
    schedule(key, watched);
}

bool expiry_schedule::remove_lease(const std::vector<lockcore::resource_name>& resources,
                                   lockcore::fencing_token token) {
    const std::lock_guard lock(mutex_);
    const auto found = leases_.find(key_of(resources, token));
    if (found == leases_.end()) return false;
    if (found->second.due) due_.erase({*found->second.due, found->first});
    leases_.erase(found);
    return true;
}

std::optional<expiry_schedule::watched_lease> expiry_schedule::take_due(time_point now) {
    const std::lock_guard lock(mutex_);
    while (!due_.empty() && due_.begin()->first <= now) {
        const auto [at, key] = *due_.begin();
        entry& watched = leases_.at(key);
        if (watched.check_at <= at) {
            due_.erase(due_.begin());
            watched.due.reset();
            return watched.lease;
        }
        schedule(key, watched);  // it was renewed since it was scheduled
    }
    return std::nullopt;
}

void expiry_schedule::schedule_check(const watched_lease& lease, time_point at) {
    const std::lock_guard lock(mutex_);
    const auto found = leases_.find(key_of(lease.resources, lease.token));
    if (found == leases_.end()) return;
    found->second.check_at = std::max(found->second.check_at, at);
    schedule(found->first, found->second);
}

std::pair<std::size_t, std::size_t> expiry_schedule::sizes() const {
    const std::lock_guard lock(mutex_);
    return {leases_.size(), due_.size()};
}

}  // namespace fencegate::audit
