#include <gateway/audit/expiry_schedule.hpp>

#include <algorithm>

namespace fencegate::audit {
namespace {

/// A lease is known by its token and its first resource.
std::string key_of(const std::vector<lockcore::resource_name>& resources, lockcore::fencing_token token) {
    return std::to_string(lockcore::value_of(token)) + ' ' + resources.front().str();
}

}  // namespace

void expiry_schedule::schedule(const std::string& key, entry& of) {
    if (of.due) due_.erase({*of.due, key});
    of.due = of.lease.until;
    due_.emplace(*of.due, key);
}

void expiry_schedule::granted(watched lease) {
    const std::lock_guard lock(mutex_);
    if (leases_.size() >= watched_max) return;
    const auto key = key_of(lease.resources, lease.token);
    entry& of = leases_[key];
    of.lease = std::move(lease);
    schedule(key, of);
}

void expiry_schedule::renewed(const std::vector<lockcore::resource_name>& resources, lockcore::fencing_token token,
                              time_point until) {
    const std::lock_guard lock(mutex_);
    const auto found = leases_.find(key_of(resources, token));
    if (found != leases_.end()) found->second.lease.until = until;  // seen when it is due
}

bool expiry_schedule::ended(const std::vector<lockcore::resource_name>& resources, lockcore::fencing_token token) {
    const std::lock_guard lock(mutex_);
    const auto found = leases_.find(key_of(resources, token));
    if (found == leases_.end()) return false;
    if (found->second.due) due_.erase({*found->second.due, found->first});
    leases_.erase(found);
    return true;
}

std::optional<expiry_schedule::watched> expiry_schedule::next(time_point now) {
    const std::lock_guard lock(mutex_);
    while (!due_.empty() && due_.begin()->first <= now) {
        const auto [at, key] = *due_.begin();
        entry& of = leases_.at(key);
        if (of.lease.until <= at) {
            due_.erase(due_.begin());
            of.due.reset();
            return of.lease;
        }
        schedule(key, of);  // it was renewed
    }
    return std::nullopt;
}

void expiry_schedule::look_again(const watched& lease, time_point at) {
    const std::lock_guard lock(mutex_);
    const auto found = leases_.find(key_of(lease.resources, lease.token));
    if (found == leases_.end()) return;
    found->second.lease.until = std::max(found->second.lease.until, at);
    schedule(found->first, found->second);
}

std::pair<std::size_t, std::size_t> expiry_schedule::sizes() const {
    const std::lock_guard lock(mutex_);
    return {leases_.size(), due_.size()};
}

}  // namespace fencegate::audit
