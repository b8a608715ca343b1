#include <gateway/limits/held_leases.hpp>

#include <algorithm>
#include <mutex>
#include <set>
#include <unordered_map>

namespace fencegate::limits {
namespace {

/// Returns the names of the resources in the order in which claims and events have them: sorted. No name is empty.
std::string key_of(std::vector<lockcore::resource_name> resources) {
    std::ranges::sort(resources, {}, [](const auto& name) -> const std::string& { return name.str(); });
    std::string out;
    for (const auto& name : resources)
        out += name.str() + '\n';
    return out;
}

/// Returns the key of a lease of which there is one at a time: with exclusive resources, or of a named owner.
std::string key_of(std::vector<lockcore::resource_name> resources, std::vector<lockcore::resource_name> shared,
                   const lockcore::holder& holder) {
    std::string out = key_of(std::move(resources));
    if (shared.empty()) return out;
    if (out.empty()) out = holder.principal + '\n' + holder.owner;
    return out + '\n' + key_of(std::move(shared));
}

std::string key_of(const lockcore::event& e) {
    if (e.shared == 0) return key_of(e.resources);
    const lockcore::holder& holder = e.kind == lockcore::event_kind::lease_revoked ? e.revoked : e.actor;
    if (e.shared == e.resources.size() && holder.owner.empty()) return '\n' + std::string(e.attempt_id.str());
    const auto first_shared = e.resources.end() - static_cast<std::ptrdiff_t>(e.shared);
    return key_of({e.resources.begin(), first_shared}, {first_shared, e.resources.end()}, holder);
}

}  // namespace

/// The calls of one principal that are acquiring the same resources.
struct held_leases::acquiring_calls {
    principal_entry* owner;
    std::size_t calls = 0;
};

/// A principal with leases or acquisitions. The entries of an unordered_map stay where they are.
struct held_leases::principal_leases {
    std::size_t used = 0;  ///< Keys that it holds, is acquiring, or both.
    std::unordered_map<std::string, acquiring_calls> acquiring;
};

/// Leases and acquisitions by the key of their resources.
class held_leases::lease_counts {
  public:
    void track(const lockcore::event& e) {
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
        const auto found = leases_.find(key_of(e));
        if (found == leases_.end() || found->second.token != e.token) return;
        if (e.kind != lockcore::event_kind::lease_renewed) return remove(*found);
        by_end_.erase({found->second.ends_at, &*found});
        found->second.ends_at = std::max(found->second.ends_at, e.at + e.ttl);
        by_end_.emplace(found->second.ends_at, &*found);
    }

    /// Out: null if the principal has `most` leases already; 0: no limit.
    acquiring_entry* begin_acquisition(const std::string& name, const std::string& key, std::size_t most,
                                       lockcore::wall_time now) {
        const std::lock_guard lock(mutex_);
        remove_expired(now);
        const auto found = principals_.find(name);
        const std::size_t used = found == principals_.end() ? 0 : found->second.used;
        const bool counted =
            found != principals_.end() && (holds(*found, key) || found->second.acquiring.contains(key));
        if (most > 0 && used >= most && !counted) return nullptr;
        auto& owner = found == principals_.end() ? *principals_.try_emplace(name).first : *found;
        auto& entry = *owner.second.acquiring.try_emplace(key, acquiring_calls{&owner}).first;
        ++entry.second.calls;
        if (!counted) ++owner.second.used;
        return &entry;
    }

    void end_acquisition(acquiring_entry& entry) {
        const std::lock_guard lock(mutex_);
        if (--entry.second.calls > 0) return;
        principal_entry& owner = *entry.second.owner;
        const bool is_granted = holds(owner, entry.first);
        owner.second.acquiring.erase(std::string(entry.first));
        if (!is_granted) decrement(owner);
    }

    bool is_held(const lockcore::resource_name& resource, lockcore::wall_time now) {
        const std::lock_guard lock(mutex_);
        remove_expired(now);
        return leases_.contains(resource.str() + '\n');
    }

    std::size_t count(const std::string& principal, lockcore::wall_time now) {
        const std::lock_guard lock(mutex_);
        remove_expired(now);
        const auto found = principals_.find(principal);
        return found == principals_.end() ? 0 : found->second.used;
    }

  private:
    struct lease {
        principal_entry* owner;
        lockcore::fencing_token token{};
        lockcore::wall_time ends_at;
    };
    using lease_entry = std::pair<const std::string, lease>;

    bool holds(const principal_entry& owner, const std::string& key) const {
        const auto found = leases_.find(key);
        return found != leases_.end() && found->second.owner == &owner;
    }

    void decrement(principal_entry& owner) {
        if (--owner.second.used == 0) principals_.erase(std::string(owner.first));
    }

    void add(const lockcore::event& e) {
        const std::string key = key_of(e);
        const std::lock_guard lock(mutex_);
        remove_expired(e.at);
        if (const auto previous = leases_.find(key); previous != leases_.end()) remove(*previous);
        if (leases_.size() >= leases_max) return;
        auto& owner = *principals_.try_emplace(e.actor.principal).first;
        auto& added = *leases_.emplace(key, lease{&owner, e.token, e.at + e.ttl}).first;
        by_end_.emplace(added.second.ends_at, &added);
        if (!owner.second.acquiring.contains(key)) ++owner.second.used;
    }

    void remove(lease_entry& removed) {
        principal_entry& owner = *removed.second.owner;
        by_end_.erase({removed.second.ends_at, &removed});
        const bool acquired = owner.second.acquiring.contains(removed.first);
        leases_.erase(std::string(removed.first));
        if (!acquired) decrement(owner);
    }

    void remove_expired(lockcore::wall_time now) {
        while (!by_end_.empty() && by_end_.begin()->first <= now)
            remove(*by_end_.begin()->second);
    }

    std::mutex mutex_;
    std::unordered_map<std::string, principal_leases> principals_;
    std::unordered_map<std::string, lease> leases_;
    std::set<std::pair<lockcore::wall_time, lease_entry*>> by_end_;
};

held_leases::acquisition::~acquisition() {
    if (counts_) counts_->end_acquisition(*entry_);
}

held_leases::held_leases(limiter& limits, lockcore::event_observer& next)
    : limiter_(limits), next_(next), counts_(std::make_shared<lease_counts>()) {}

held_leases::~held_leases() = default;

void held_leases::on_event(lockcore::event e) {
    counts_->track(e);
    next_.on_event(std::move(e));
}

result<held_leases::acquisition> held_leases::admit(const std::shared_ptr<caller>& principal,
                                                    const lockcore::acquire_request& wanted, bool any_of,
                                                    lockcore::wall_time now) {
    const bool may_have_several = any_of || (wanted.resources.empty() && wanted.holder.owner.empty());
    // This is the key of no lease.
    const std::string key = may_have_several ? '\n' + std::to_string(counted_alone_.fetch_add(1))
                                             : key_of(wanted.resources, wanted.shared, wanted.holder);
    auto* const entry = counts_->begin_acquisition(principal->principal(), key, principal->leases_max(), now);
    if (entry == nullptr) {
        limiter_.count_refusal(refusal::leases);
        return make_failure(errc::too_many_requests,
                            "The principal holds, or is acquiring, as many leases of this gateway as "
                            "limits.principal.leases_max allows.");
    }
    acquisition out;
    out.counts_ = counts_;
    out.entry_ = entry;
    return out;
}

bool held_leases::is_held(const lockcore::resource_name& resource, lockcore::wall_time now) {
    return counts_->is_held(resource, now);
}

std::size_t held_leases::count(const std::string& principal, lockcore::wall_time now) {
    return counts_->count(principal, now);
}

}  // namespace fencegate::limits
