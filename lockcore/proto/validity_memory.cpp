#include <proto/validity_memory.hpp>

#include <proto/failures.hpp>

#include <algorithm>

namespace lockcore {

void validity_memory::remember(const lease_claims& claims, validity_time until) {
    if (validities_.size() >= validities_max && !validities_.contains(claims.attempt_id)) return;
    known_validity& known = validities_[claims.attempt_id];
    known = {claims.token, std::max(known.until, until)};
}

bool validity_memory::is_valid(const lease_claims& claims, validity_time now) const {
    const auto known = validities_.find(claims.attempt_id);
    return known != validities_.end() && known->second.token == claims.token && now < known->second.until;
}

void validity_memory::forget_expired(validity_time now) {
    std::erase_if(validities_, [now](const auto& entry) { return entry.second.until <= now; });
}

failure validity_memory::why_lost(const lease_claims& claims, validity_time now) const {
    const auto because = [](const char* detail) { return make_failure(errc::lease_lost, detail); };
    if (has_ended(claims.hold.str())) return because("This hold of the lease was released before.");
    if (has_ended(claims.attempt_id.str())) return because("The lease was revoked.");
    const auto known = validities_.find(claims.attempt_id);
    if (known != validities_.end() && known->second.until <= now)
        return because("The lease has expired: it was not renewed in time.");
    return because(
        "No majority of the nodes holds this lease, or this hold of it, any more: it has expired, or was released or "
        "revoked through another gateway.");
}

void validity_memory::add_ended(std::string_view id) {
    if (!ended_.insert(hash_of(id)).second) return;
    ended_in_order_.push_back(hash_of(id));
    if (ended_in_order_.size() <= ended_max) return;
    ended_.erase(ended_in_order_.front());
    ended_in_order_.pop_front();
}

}  // namespace lockcore
