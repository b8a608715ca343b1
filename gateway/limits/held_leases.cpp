#include <gateway/limits/held_leases.hpp>

#include <algorithm>

namespace fencegate::limits {
namespace {

/// Returns the names of the resources in the order in which claims and events have them: sorted.
std::string key_of(std::vector<lockcore::resource_name> resources) {
    std::ranges::sort(resources, {}, [](const auto& name) -> const std::string& { return name.str(); });
    std::string out;
    for (const auto& name : resources)
        out += name.str() + '\n';
    return out;
}

}  // namespace

void held_leases::on_event(lockcore::event e) {
    if (limiter_.limits_leases()) track(e);
    next_.on_event(std::move(e));
}

void held_leases::track(const lockcore::event& e) {
    if (e.resources.empty()) return;
    switch (e.kind) {
        case lockcore::event_kind::lease_granted:
            return add(e);
        case lockcore::event_kind::lease_renewed:
        case lockcore::event_kind::lease_released:
        case lockcore::event_kind::lease_revoked:
            break;
        default:
            return;
    }
    const std::lock_guard lock(mutex_);
    const auto found = leases_.find(key_of(e.resources));
    if (found == leases_.end() || found->second.token != e.token) return;
    if (e.kind != lockcore::event_kind::lease_renewed) return remove(found);
    by_end_.erase({found->second.ends_at, found->first});
    found->second.ends_at = std::max(found->second.ends_at, e.at + e.ttl);
    by_end_.emplace(found->second.ends_at, found->first);
}

void held_leases::add(const lockcore::event& e) {
    const std::lock_guard lock(mutex_);
    remove_expired(e.at);
    const std::string key = key_of(e.resources);
    if (const auto previous = leases_.find(key); previous != leases_.end()) remove(previous);
    if (leases_.size() >= leases_max) return;
    leases_.emplace(key, entry{e.actor.principal, e.token, e.at + e.ttl});
    by_end_.emplace(e.at + e.ttl, key);
    ++counts_[e.actor.principal];
}

void held_leases::remove(entries::iterator lease) {
    const auto counted = counts_.find(lease->second.principal);
    if (--counted->second == 0) counts_.erase(counted);
    by_end_.erase({lease->second.ends_at, lease->first});
    leases_.erase(lease);
}

void held_leases::remove_expired(lockcore::wall_time now) {
    while (!by_end_.empty() && by_end_.begin()->first <= now)
        remove(leases_.find(by_end_.begin()->second));
}

result<place> held_leases::admit(const std::shared_ptr<caller>& principal,
                                 const std::vector<lockcore::resource_name>& resources, lockcore::wall_time now) {
    const std::size_t most = principal->leases_max();
    if (most == 0) return place();
    const std::lock_guard lock(mutex_);
    remove_expired(now);
    if (holds(principal->principal(), resources)) return place();
    const auto held = counts_.find(principal->principal());
    const std::size_t used = (held == counts_.end() ? 0 : held->second) + principal->count(use::acquisitions);
    if (used < most) return place(principal, use::acquisitions);
    limiter_.count_refusal(refusal::leases);
    return no_place_failure(use::acquisitions);
}

std::size_t held_leases::count(const std::string& principal, lockcore::wall_time now) {
    const std::lock_guard lock(mutex_);
    remove_expired(now);
    const auto found = counts_.find(principal);
    return found == counts_.end() ? 0 : found->second;
}

bool held_leases::holds(const std::string& principal, const std::vector<lockcore::resource_name>& resources) const {
    const auto found = leases_.find(key_of(resources));
    return found != leases_.end() && found->second.principal == principal;
}

}  // namespace fencegate::limits
