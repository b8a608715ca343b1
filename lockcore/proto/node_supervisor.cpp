#include <proto/node_supervisor.hpp>

#include <proto/plausible_epoch.hpp>

#include <algorithm>

namespace lockcore {

std::string find_misconfiguration(const node_facts& facts) {
    if (facts.role != "master")
        return "is a " + facts.role +
               ": every node must be an independent primary; point the "
               "configuration at a server of its own";
    if (facts.cluster_mode)
        return "runs in cluster mode: set cluster-enabled no and use an "
               "independent server";
    if (!facts.outdated_version.empty())
        return "is Redis " + facts.outdated_version +
               ": nodes need 7.0 or newer, which counts calls of CONFIG SET "
               "separately";
    if (facts.maxmemory_policy != "noeviction")
        return "may evict keys (maxmemory-policy " + facts.maxmemory_policy + "): set maxmemory-policy noeviction";
    return {};
}

std::string find_other_cell(std::string_view claim, cell_id own) {
    if (claim.empty()) return {};
    const auto marked = split_cell(claim);
    if (marked && marked->cell == own) return {};
    return "belongs to " + (marked ? "cell " + std::to_string(marked->cell) : "another cell") +
           ", this gateway is of cell " + std::to_string(own) + ": correct redis.nodes or cell";
}

std::string find_implausible_epoch(epoch claimed, epoch highest_plausible) {
    if (claimed <= highest_plausible) return {};
    const std::string begin = "its epoch " + std::to_string(value_of(claimed));
    const std::string end =
        ": its data are not of this cluster, or were changed by hand; look at base and floor of fg:node";
    if (value_of(claimed) >= epochs_max) return begin + " is not below 2^21" + end;
    return begin + " is more than " + std::to_string(epoch_lead_max) + " above those of the other nodes" + end;
}

node_supervisor::step node_supervisor::connected() {
    state_ = node_state::identifying;
    detail_ = "reading run id, role and persistence";
    return {action::identify, milliseconds{0}};
}

node_supervisor::step node_supervisor::disconnected(std::string reason) {
    state_ = node_state::unreachable;
    detail_ = std::move(reason);
    const step next{action::connect, reconnect_delay_};
    reconnect_delay_ = std::min(reconnect_delay_ * 2, reconnect_max);
    return next;
}

node_supervisor::step node_supervisor::refuse(std::string reason) {
    state_ = node_state::misconfigured;
    detail_ = std::move(reason);
    return {action::identify, recheck_delay};
}

node_supervisor::step node_supervisor::credentials_refused(std::string reason) {
    refuse(std::move(reason));
    return {action::connect, recheck_delay};
}

std::string node_supervisor::find_data_loss() const {
    if (facts_.marks.lost != facts_.admitted_marks.lost) return "a command was called that replaces or removes data";
    if (facts_.marks.evicted != facts_.admitted_marks.evicted) return "keys were evicted";
    return {};
}

node_supervisor::step node_supervisor::identified(node_facts facts, monotonic_time now) {
    facts_ = std::move(facts);
    reconnect_delay_ = reconnect_min;
    if (!facts_.other_cell.empty()) {
        // Its admission and epochs are those of another register, and nothing is written to this one about it.
        facts_.admitted_epoch = facts_.floor_epoch = epoch{};
        return refuse(facts_.other_cell);
    }
    if (std::string reason = find_misconfiguration(facts_); !reason.empty()) {
        const step next = refuse(std::move(reason));
        const bool evicts = facts_.role == "master" && facts_.maxmemory_policy != "noeviction";
        if (evicts && facts_.is_admitted()) return {action::delete_admission, milliseconds{0}};
        // After a restart its configuration may be right while its data lack evicted keys, or come from the primary that
        // it replicated.
        if (recorded_process_ != process_with_losses()) may_have_lost_data_ = true;
        return may_have_lost_data_ ? step{action::note_unsynced, milliseconds{0}} : next;
    }
    if (!facts_.duplicate_of.empty())
        return refuse("is the same server as " + facts_.duplicate_of + " (equal run id): configure different servers");
    if (!facts_.implausible_epoch.empty()) return refuse_implausible();
    if (facts_.is_admitted()) return review();

    // Every lease that the node may have forgotten was granted before this moment.
    if (first_seen_life_ != life()) {
        first_seen_life_ = life();
        first_seen_at_ = now;
    }
    if (record_life_ != life()) {
        state_ = node_state::identifying;
        detail_ = "waiting for the register of epochs";
        return {action::find_record, milliseconds{0}};
    }
    return quarantine_or_draw(now);
}

node_supervisor::step node_supervisor::refuse_implausible() {
    const step next = refuse(facts_.implausible_epoch);
    std::string claim = life() + '/' + std::to_string(value_of(facts_.claimed_epoch()));
    if (looked_up_claim_ == claim) return next;
    looked_up_claim_ = std::move(claim);
    return {action::find_record, milliseconds{0}};
}

node_supervisor::step node_supervisor::review() {
    if (std::string reason = find_data_loss(); !reason.empty()) {
        may_have_lost_data_ = true;
        state_ = node_state::identifying;
        detail_ = "may have forgotten leases while it ran: " + std::move(reason);
        return {action::delete_admission, milliseconds{0}};
    }
    if (!facts_.syncs_every_write && !facts_.kept_unsynced) {
        state_ = node_state::identifying;
        detail_ = "does not sync every write: waiting for the register to record that";
        return {action::note_unsynced, milliseconds{0}};
    }
    if (facts_.admitted_marks.text != facts_.marks.text) {
        state_ = node_state::identifying;
        detail_ = "its settings were changed and have been checked";
        return {action::readmit, milliseconds{0}};
    }
    state_ = node_state::voting;
    detail_.clear();
    epoch_ = facts_.admitted_epoch;
    may_have_lost_data_ = false;
    record_life_.clear();
    drawn_life_.clear();
    copied_life_.clear();
    copy_again_at_ = {};
    last_copy_failure_.clear();
    first_seen_life_.clear();
    return {action::vote, milliseconds{0}};
}

node_supervisor::step node_supervisor::record_found(node_record record, monotonic_time now) {
    // The driver has learned the epoch that was drawn for the node. The claim may be plausible now.
    if (!facts_.implausible_epoch.empty()) return {action::identify, milliseconds{0}};
    record_ = record;
    record_life_ = life();
    return quarantine_or_draw(now);
}

node_supervisor::step node_supervisor::epoch_drawn(epoch drawn) {
    drawn_ = drawn;
    drawn_life_ = life();
    drawn_synced_ = facts_.syncs_every_write;
    state_ = node_state::identifying;
    detail_ = "being admitted";
    return {action::readmit, milliseconds{0}};
}

node_supervisor::step node_supervisor::unsynced_noted() {
    record_.synced = false;
    may_have_lost_data_ = false;
    recorded_process_ = process_with_losses();
    if (state_ == node_state::misconfigured) return {action::identify, recheck_delay};
    // Of an admitted node READMIT writes only the marks and `sync`.
    return {facts_.is_admitted() ? action::readmit : action::identify, milliseconds{0}};
}

node_supervisor::step node_supervisor::register_failed(std::string reason) {
    looked_up_claim_.clear();
    if (state_ != node_state::misconfigured) {
        state_ = node_state::identifying;
        detail_ = "the register of epochs does not answer: " + std::move(reason);
    }
    return {action::identify, recheck_delay};
}

node_supervisor::step node_supervisor::admission_deleted(std::string refusal) {
    if (!refusal.empty())
        return refuse("may have forgotten leases, and its admission can't be deleted: " + std::move(refusal));
    return {action::identify, state_ == node_state::misconfigured ? recheck_delay : milliseconds{0}};
}

node_supervisor::step node_supervisor::quarantine_or_draw(monotonic_time now) {
    // The previous process synced every write while it voted, and the data are the ones that it wrote: with its present
    // settings this process has loaded the file to which they were synced.
    const bool data_survived = record_.synced && facts_.syncs_every_write && !facts_.admitted_run_id.empty() &&
                               facts_.admitted_epoch == record_.latest_epoch && facts_.marks.is_unchanged_since_start();
    // An epoch was drawn for this life: it is known that the node may vote.
    const bool decided = record_.life == life();
    if (record_.known && !decided && (!data_survived || may_have_lost_data_)) {
        if (record_.synced) {
            may_have_lost_data_ = true;
            state_ = node_state::identifying;
            detail_ = "may have forgotten leases: waiting for the register to record that";
            return {action::note_unsynced, milliseconds{0}};
        }
        // Measured by this program's clock: the uptime in INFO depends on the node's wall clock, which may be set.
        quarantine_until_ = first_seen_at_ + max_ttl_;
        if (now < quarantine_until_ && copied_life_ != life()) {
            state_ = node_state::quarantined;
            describe_quarantine();
            if (leads_ && now >= copy_again_at_) return {action::copy_leases, milliseconds{0}};
            return {action::identify, std::min(recheck_soon_delay, quarantine_left(now))};
        }
    }
    state_ = node_state::identifying;
    // The draw must follow the reading of the run id (R8b), and is valid for the life of that process and its data. A
    // repeated draw records that the node no longer syncs every write.
    if (drawn_life_ != life() || (drawn_synced_ && !facts_.syncs_every_write)) {
        detail_ = "waiting for an epoch";
        return {action::draw_epoch, milliseconds{0}};
    }
    detail_ = "being admitted";
    return {action::readmit, milliseconds{0}};
}

node_supervisor::step node_supervisor::leases_copied(std::string mark, monotonic_time now) {
    copied_life_ = life();
    copy_mark_ = std::move(mark);
    return quarantine_or_draw(now);
}

node_supervisor::step node_supervisor::copying_failed(std::string reason, monotonic_time now) {
    if (!reason.empty()) copy_again_at_ = now + copy_again_delay;
    last_copy_failure_ = std::move(reason);
    describe_quarantine();
    return {action::identify, std::min(recheck_soon_delay, quarantine_left(now))};
}

node_supervisor::step node_supervisor::too_few_to_copy_from(monotonic_time now) {
    last_copy_failure_ = "too few other nodes vote";
    describe_quarantine();
    return {action::identify, std::min(recheck_soon_delay, quarantine_left(now))};
}

void node_supervisor::describe_quarantine() {
    detail_ = "may have forgotten leases; does not vote until it has a copy of them, or all have expired";
    if (!last_copy_failure_.empty()) detail_ += " (no copy yet: " + last_copy_failure_ + ")";
}

node_supervisor::step node_supervisor::readmit_answered(bool admitted) {
    // GONE: the server was restarted, its data was wiped, or a setting was changed. The record and the epoch of the old
    // life are used again only if the next identification finds the same life. The mark of the copies names the
    // settings too, so after a change of these the leases are copied again.
    if (!admitted) copied_life_.clear();
    return {action::identify, admitted ? milliseconds{0} : recheck_soon_delay};
}

node_supervisor::step node_supervisor::readmit_refused(std::string reason) {
    state_ = node_state::misconfigured;
    detail_ = "can't be admitted, the node says: " + std::move(reason);
    return {action::identify, recheck_delay};
}

node_supervisor::step node_supervisor::found_not_admitted() {
    state_ = node_state::identifying;
    detail_ =
        "is not admitted, or a command was called after which its settings "
        "must be checked";
    return {action::identify, milliseconds{0}};
}

node_supervisor::step node_supervisor::commands_refused(std::string reason) {
    const bool passes = reason.starts_with("LOADING") || reason.starts_with("BUSY");
    const step next = refuse("refuses commands: " + std::move(reason));
    if (!passes) return next;
    state_ = node_state::identifying;  // no operator need correct it
    return {action::identify, recheck_soon_delay};
}

milliseconds node_supervisor::quarantine_left(monotonic_time now) const {
    if (state_ != node_state::quarantined) return milliseconds{0};
    return std::max(milliseconds{0}, std::chrono::ceil<milliseconds>(quarantine_until_ - now));
}

}  // namespace lockcore
