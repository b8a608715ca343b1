#include <proto/node_supervisor.hpp>

#include <algorithm>

namespace lockcore {

std::string why_no_node(const node_facts& facts) {
    if (facts.role != "master")
        return "is a " + facts.role +
               ": every node must be an independent primary; point the configuration at a server of its own";
    if (facts.cluster_mode) return "runs in cluster mode: set cluster-enabled no and use an independent server";
    if (facts.maxmemory_policy != "noeviction")
        return "may evict keys (maxmemory-policy " + facts.maxmemory_policy + "): set maxmemory-policy noeviction";
    return {};
}

node_supervisor::step node_supervisor::connected() {
    state_ = node_state::identifying;
    detail_ = "reading run id, role and persistence";
    return {action::identify, milliseconds{0}};
}

node_supervisor::step node_supervisor::disconnected(std::string why) {
    state_ = node_state::unreachable;
    detail_ = std::move(why);
    const step next{action::connect, reconnect_delay_};
    reconnect_delay_ = std::min(reconnect_delay_ * 2, reconnect_max);
    return next;
}

node_supervisor::step node_supervisor::refuse(std::string why) {
    state_ = node_state::misconfigured;
    detail_ = std::move(why);
    return {action::identify, look_again};
}

node_supervisor::step node_supervisor::identified(node_facts facts, monotonic_time now) {
    facts_ = std::move(facts);
    reconnect_delay_ = reconnect_min;
    if (std::string why = why_no_node(facts_); !why.empty()) return refuse(std::move(why));
    if (!facts_.same_as.empty())
        return refuse("is the same server as " + facts_.same_as + " (one run id): configure different servers");

    if (facts_.admitted_run_id == facts_.run_id) {
        state_ = node_state::voting;
        detail_.clear();
        epoch_ = facts_.admitted_epoch;
        drawn_for_.clear();
        first_seen_life_.clear();
        return {action::vote, milliseconds{0}};
    }
    // Whatever it forgot was given before this moment.
    if (first_seen_life_ != life()) {
        first_seen_life_ = life();
        first_seen_at_ = now;
    }
    // The draw must follow the sight of the run id (R8b), and is good for as long as that process and its data live.
    if (drawn_for_ != life()) {
        state_ = node_state::identifying;
        detail_ = "waiting for an epoch";
        return {action::draw_epoch, milliseconds{0}};
    }
    return quarantine_or_readmit(now);
}

node_supervisor::step node_supervisor::epoch_drawn(drawn_epoch drawn, monotonic_time now) {
    drawn_ = drawn;
    drawn_for_ = life();
    return quarantine_or_readmit(now);
}

node_supervisor::step node_supervisor::epoch_not_drawn(std::string why) {
    state_ = node_state::identifying;
    detail_ = "no epoch could be drawn: " + std::move(why);
    return {action::identify, look_again};
}

node_supervisor::step node_supervisor::quarantine_or_readmit(monotonic_time now) {
    const bool data_survived = !facts_.admitted_run_id.empty() && facts_.syncs_every_write && facts_.synced_so_far;
    if (!drawn_.first_admission && !data_survived) {
        // By our own clock: INFO's uptime is a difference of the node's wall clock, which may be set meanwhile.
        quarantine_until_ = first_seen_at_ + max_ttl_;
        if (now < quarantine_until_) {
            state_ = node_state::quarantined;
            detail_ = "may have forgotten leases; sits out until all given before have run out";
            return {action::identify, std::min(look_again, quarantine_left(now))};
        }
    }
    state_ = node_state::identifying;
    detail_ = "being admitted";
    return {action::readmit, milliseconds{0}};
}

node_supervisor::step node_supervisor::readmit_answered(bool admitted) {
    // GONE: another process answers there by now, or its data was wiped; what was drawn must not be used for it.
    if (admitted) return {action::identify, milliseconds{0}};
    drawn_for_.clear();
    return {action::identify, look_again};  // never a tight loop: each turn costs an epoch
}

node_supervisor::step node_supervisor::readmit_refused(std::string why) {
    state_ = node_state::misconfigured;
    detail_ = "can't be admitted, the node says: " + std::move(why);
    return {action::identify, look_again};
}

node_supervisor::step node_supervisor::found_not_admitted() {
    state_ = node_state::identifying;
    detail_ = "is no longer admitted";
    drawn_for_.clear();
    return {action::identify, milliseconds{0}};
}

node_supervisor::step node_supervisor::commands_refused(std::string why) {
    return refuse("refuses commands: " + std::move(why));
}

milliseconds node_supervisor::quarantine_left(monotonic_time now) const {
    if (state_ != node_state::quarantined) return milliseconds{0};
    return std::max(milliseconds{0}, std::chrono::ceil<milliseconds>(quarantine_until_ - now));
}

}  // namespace lockcore
