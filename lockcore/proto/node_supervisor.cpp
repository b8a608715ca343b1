#include <proto/node_supervisor.hpp>

#include <algorithm>

namespace lockcore {

std::string why_no_node(const node_facts& facts) {
    if (facts.role != "master")
        return "is a " + facts.role +
               ": every node must be an independent primary; point the configuration at a server of its own";
    if (facts.cluster_mode) return "runs in cluster mode: set cluster-enabled no and use an independent server";
    if (!facts.too_old.empty())
        return "is Redis " + facts.too_old + ": nodes need 7.0 or newer, which counts CONFIG SET by itself";
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

std::string node_supervisor::why_forgot() const {
    if (facts_.marks.lost != facts_.admitted_marks.lost) return "a command ran that replaces or loses data";
    if (facts_.marks.evicted != facts_.admitted_marks.evicted) return "keys were evicted";
    return {};
}

node_supervisor::step node_supervisor::identified(node_facts facts, monotonic_time now) {
    facts_ = std::move(facts);
    reconnect_delay_ = reconnect_min;
    if (std::string why = why_no_node(facts_); !why.empty()) {
        const bool evicts = facts_.role == "master" && facts_.maxmemory_policy != "noeviction";
        step next = refuse(std::move(why));
        if (evicts && facts_.is_admitted()) next = {action::forget, milliseconds{0}};
        return next;
    }
    if (!facts_.same_as.empty())
        return refuse("is the same server as " + facts_.same_as + " (one run id): configure different servers");
    if (facts_.is_admitted()) return review();

    // Whatever it forgot was given before this moment.
    if (first_seen_life_ != life()) {
        first_seen_life_ = life();
        first_seen_at_ = now;
    }
    if (record_for_ != life()) {
        state_ = node_state::identifying;
        detail_ = "waiting for the register of epochs";
        return {action::find_record, milliseconds{0}};
    }
    return quarantine_or_draw(now);
}

node_supervisor::step node_supervisor::review() {
    if (std::string why = why_forgot(); !why.empty()) {
        state_ = node_state::identifying;
        detail_ = "has forgotten while it ran: " + std::move(why);
        return {action::forget, milliseconds{0}};
    }
    if (!facts_.syncs_every_write && !facts_.kept_unsynced) {
        state_ = node_state::identifying;
        detail_ = "does not sync every write: waiting for the register to keep that";
        return {action::note_unsynced, milliseconds{0}};
    }
    if (facts_.admitted_marks.text != facts_.marks.text) {
        state_ = node_state::identifying;
        detail_ = "its settings were changed and have been looked at";
        return {action::readmit, milliseconds{0}};
    }
    state_ = node_state::voting;
    detail_.clear();
    epoch_ = facts_.admitted_epoch;
    record_for_.clear();
    drawn_for_.clear();
    first_seen_life_.clear();
    return {action::vote, milliseconds{0}};
}

node_supervisor::step node_supervisor::record_found(node_record record, monotonic_time now) {
    record_ = record;
    record_for_ = life();
    return quarantine_or_draw(now);
}

node_supervisor::step node_supervisor::epoch_drawn(epoch drawn) {
    drawn_ = drawn;
    drawn_for_ = life();
    state_ = node_state::identifying;
    detail_ = "being admitted";
    return {action::readmit, milliseconds{0}};
}

node_supervisor::step node_supervisor::unsynced_noted() {
    return {action::readmit, milliseconds{0}};  // of a node that is admitted: has it remember that, and the marks
}

node_supervisor::step node_supervisor::register_failed(std::string why) {
    state_ = node_state::identifying;
    detail_ = "the register of epochs does not answer: " + std::move(why);
    return {action::identify, look_again};
}

node_supervisor::step node_supervisor::forgotten(std::string refusal) {
    if (!refusal.empty()) return refuse("has forgotten, and its admission can't be deleted: " + std::move(refusal));
    return {action::identify, state_ == node_state::misconfigured ? look_again : milliseconds{0}};
}

node_supervisor::step node_supervisor::quarantine_or_draw(monotonic_time now) {
    // The process that ran before synced every write as long as it voted, and these are the data that it left.
    const bool data_survived = record_.synced && facts_.syncs_every_write && !facts_.admitted_run_id.empty() &&
                               facts_.admitted_epoch == record_.drawn && !facts_.marks.lost_any();
    if (record_.known && !data_survived) {
        // By our own clock: INFO's uptime is a difference of the node's wall clock, which may be set meanwhile.
        quarantine_until_ = first_seen_at_ + max_ttl_;
        if (now < quarantine_until_) {
            state_ = node_state::quarantined;
            detail_ = "may have forgotten leases; sits out until all given before have run out";
            return {action::identify, std::min(look_again, quarantine_left(now))};
        }
    }
    state_ = node_state::identifying;
    // The draw must follow the sight of the run id (R8b), and is good for as long as that process and its data live.
    if (drawn_for_ != life()) {
        detail_ = "waiting for an epoch";
        return {action::draw_epoch, milliseconds{0}};
    }
    detail_ = "being admitted";
    return {action::readmit, milliseconds{0}};
}

node_supervisor::step node_supervisor::readmit_answered(bool admitted) {
    // GONE: another process answers there by now, its data was wiped, or a setting was changed: what is kept here for
    // the life that was seen is used only if the next look finds the same one.
    return {action::identify, admitted ? milliseconds{0} : look_again};  // never a tight loop
}

node_supervisor::step node_supervisor::readmit_refused(std::string why) {
    state_ = node_state::misconfigured;
    detail_ = "can't be admitted, the node says: " + std::move(why);
    return {action::identify, look_again};
}

node_supervisor::step node_supervisor::found_not_admitted() {
    state_ = node_state::identifying;
    detail_ = "is not admitted, or commands ran there after which it has to be looked at";
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
