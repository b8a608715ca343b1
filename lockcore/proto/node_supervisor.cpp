#include <proto/node_supervisor.hpp>

#include <proto/epochs.hpp>

#include <algorithm>

namespace lockcore {

std::string find_misconfiguration(const node_facts& facts) {
    if (facts.role != "master")
        return "is a " + facts.role +
               ": every node must be an independent primary; point the configuration at a server of its own";
    if (facts.cluster_mode) return "runs in cluster mode: set cluster-enabled no and use an independent server";
    if (!facts.outdated_version.empty())
        return "is Redis " + facts.outdated_version +
               ": nodes need 7.0 or newer, which counts calls of CONFIG SET separately";
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

void node_supervisor::set(node_state state, std::string detail) {
    state_ = state;
    detail_ = std::move(detail);
}

node_supervisor::step node_supervisor::connected() {
    set(node_state::identifying, "reading run id, role and persistence");
    return {action::identify, milliseconds{0}};
}

node_supervisor::step node_supervisor::disconnected(std::string reason) {
    set(node_state::unreachable, std::move(reason));
    const step next{action::connect, reconnect_delay_};
    reconnect_delay_ = std::min(reconnect_delay_ * 2, reconnect_max);
    return next;
}

node_supervisor::step node_supervisor::refuse(std::string reason) {
    set(node_state::misconfigured, std::move(reason));
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

void node_supervisor::replace_facts(node_facts facts) {
    if (facts.run_id != facts_.run_id || facts.marks.lost != facts_.marks.lost) losses_recorded_ = false;
    const std::string old_life = life();
    facts_ = std::move(facts);
    if (life() != old_life) this_life_ = {};
}

node_supervisor::step node_supervisor::identified(node_facts facts, monotonic_time now) {
    replace_facts(std::move(facts));
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
        // After a restart its configuration may be right while its data lack evicted keys, or come from the primary
        // that it replicated.
        if (!losses_recorded_) may_have_lost_data_ = true;
        return may_have_lost_data_ ? step{action::note_unsynced, milliseconds{0}} : next;
    }
    if (!facts_.duplicate_of.empty())
        return refuse("is the same server as " + facts_.duplicate_of + " (equal run id): configure different servers");
    if (!facts_.implausible_epoch.empty()) return refuse_implausible();
    if (facts_.is_admitted()) return review();

    if (!this_life_.first_seen_at) this_life_.first_seen_at = now;
    if (!this_life_.record) {
        set(node_state::identifying, "waiting for the register of epochs");
        return {action::find_record, milliseconds{0}};
    }
    return quarantine_or_draw(now);
}

node_supervisor::step node_supervisor::refuse_implausible() {
    const step next = refuse(facts_.implausible_epoch);
    if (this_life_.looked_up_epoch == facts_.claimed_epoch()) return next;
    this_life_.looked_up_epoch = facts_.claimed_epoch();
    return {action::find_record, milliseconds{0}};
}

node_supervisor::step node_supervisor::review() {
    if (const std::string reason = find_data_loss(); !reason.empty()) {
        may_have_lost_data_ = true;
        set(node_state::identifying, "may have forgotten leases while it ran: " + reason);
        return {action::delete_admission, milliseconds{0}};
    }
    if (!facts_.syncs_every_write && !facts_.kept_unsynced) {
        set(node_state::identifying, "does not sync every write: waiting for the register to record that");
        return {action::note_unsynced, milliseconds{0}};
    }
    if (facts_.admitted_marks.text != facts_.marks.text) {
        set(node_state::identifying, "its settings were changed and have been checked");
        return {action::readmit, milliseconds{0}};
    }
    set(node_state::voting, {});
    epoch_ = facts_.admitted_epoch;
    this_life_ = {};
    may_have_lost_data_ = false;
    copy_again_at_ = {};
    last_copy_failure_.clear();
    return {action::vote, milliseconds{0}};
}

node_supervisor::step node_supervisor::record_found(node_record record, monotonic_time now) {
    // The driver has learned the epoch that was drawn for the node. The claim may be plausible now.
    if (!facts_.implausible_epoch.empty()) return {action::identify, milliseconds{0}};
    this_life_.record = std::move(record);
    return quarantine_or_draw(now);
}

node_supervisor::step node_supervisor::epoch_drawn(epoch drawn) {
    this_life_.drawn = drawn;
    this_life_.drawn_synced = facts_.syncs_every_write;
    set(node_state::identifying, "being admitted");
    return {action::readmit, milliseconds{0}};
}

node_supervisor::step node_supervisor::unsynced_noted() {
    if (this_life_.record) this_life_.record->synced = false;
    may_have_lost_data_ = false;
    losses_recorded_ = true;
    if (state_ == node_state::misconfigured) return {action::identify, recheck_delay};
    // Of an admitted node READMIT writes only the marks and `sync`.
    return {facts_.is_admitted() ? action::readmit : action::identify, milliseconds{0}};
}

node_supervisor::step node_supervisor::register_failed(std::string reason) {
    this_life_.looked_up_epoch.reset();
    if (state_ != node_state::misconfigured)
        set(node_state::identifying, "the register of epochs does not answer: " + std::move(reason));
    return {action::identify, recheck_delay};
}

node_supervisor::step node_supervisor::admission_deleted(std::string refusal) {
    if (!refusal.empty())
        return refuse("may have forgotten leases, and its admission can't be deleted: " + std::move(refusal));
    return {action::identify, state_ == node_state::misconfigured ? recheck_delay : milliseconds{0}};
}

bool node_supervisor::may_lack_leases() const {
    const node_record& record = this_life_.record.value();
    // A node without an epoch has forgotten nothing. An epoch that was drawn for this life says that the node may vote.
    if (!record.known || record.life == life()) return false;
    // The previous process synced every write while it voted, and the data are the ones that it wrote: with its present
    // settings this process has loaded the file to which they were synced.
    const bool data_survived = record.synced && facts_.syncs_every_write && !facts_.admitted_run_id.empty() &&
                               facts_.admitted_epoch == record.latest_epoch && facts_.marks.is_unchanged_since_start();
    return may_have_lost_data_ || !data_survived;
}

node_supervisor::step node_supervisor::quarantine_or_draw(monotonic_time now) {
    if (may_lack_leases()) {
        if (this_life_.record->synced) {
            may_have_lost_data_ = true;
            set(node_state::identifying, "may have forgotten leases: waiting for the register to record that");
            return {action::note_unsynced, milliseconds{0}};
        }
        if (now < quarantine_end() && !this_life_.copy_mark) return quarantine(now);
    }
    // The draw must follow the reading of the run id (R8b), and is valid for the life of that process and its data. A
    // repeated draw records that the node no longer syncs every write.
    if (!this_life_.drawn || (this_life_.drawn_synced && !facts_.syncs_every_write)) {
        set(node_state::identifying, "waiting for an epoch");
        return {action::draw_epoch, milliseconds{0}};
    }
    set(node_state::identifying, "being admitted");
    return {action::readmit, milliseconds{0}};
}

node_supervisor::step node_supervisor::quarantine(monotonic_time now) {
    set(node_state::quarantined, describe_quarantine());
    if (leads_ && now >= copy_again_at_) return {action::copy_leases, milliseconds{0}};
    return {action::identify, std::min(recheck_soon_delay, quarantine_left(now))};
}

node_supervisor::step node_supervisor::leases_copied(std::string mark, monotonic_time now) {
    if (!this_life_.record) return {action::identify, milliseconds{0}};  // That life has ended.
    this_life_.copy_mark = std::move(mark);
    return quarantine_or_draw(now);
}

node_supervisor::step node_supervisor::copying_failed(std::string reason, monotonic_time now) {
    if (!reason.empty()) copy_again_at_ = now + copy_again_delay;
    last_copy_failure_ = std::move(reason);
    detail_ = describe_quarantine();
    return {action::identify, std::min(recheck_soon_delay, quarantine_left(now))};
}

node_supervisor::step node_supervisor::too_few_to_copy_from(monotonic_time now) {
    last_copy_failure_ = "too few other nodes vote";
    detail_ = describe_quarantine();
    return {action::identify, std::min(recheck_soon_delay, quarantine_left(now))};
}

std::string node_supervisor::describe_quarantine() const {
    const std::string detail =
        "may have forgotten leases; does not vote until it has a copy of them, or all have expired";
    return last_copy_failure_.empty() ? detail : detail + " (no copy yet: " + last_copy_failure_ + ")";
}

node_supervisor::step node_supervisor::readmit_answered(bool admitted) {
    // GONE: the server was restarted, its data was wiped, or a setting was changed. The record and the epoch are used
    // again only if the next identification finds the same life. The mark of the copies names the settings too, so
    // after a change of these the leases are copied again.
    if (!admitted) this_life_.copy_mark.reset();
    return {action::identify, admitted ? milliseconds{0} : recheck_soon_delay};
}

node_supervisor::step node_supervisor::readmit_refused(std::string reason) {
    return refuse("can't be admitted, the node says: " + std::move(reason));
}

node_supervisor::step node_supervisor::found_not_admitted() {
    set(node_state::identifying, "is not admitted, or a command was called after which its settings must be checked");
    return {action::identify, milliseconds{0}};
}

node_supervisor::step node_supervisor::commands_refused(std::string reason) {
    const bool passes = reason.starts_with("LOADING") || reason.starts_with("BUSY");
    const step next = refuse("refuses commands: " + std::move(reason));
    if (!passes) return next;
    state_ = node_state::identifying;  // no operator need correct it
    return {action::identify, recheck_soon_delay};
}

monotonic_time node_supervisor::quarantine_end() const {
    // Measured by this program's clock: the uptime in INFO depends on the node's wall clock, which may be set.
    return this_life_.first_seen_at.value() + max_ttl_;
}

milliseconds node_supervisor::quarantine_left(monotonic_time now) const {
    if (state_ != node_state::quarantined) return milliseconds{0};
    return std::max(milliseconds{0}, std::chrono::ceil<milliseconds>(quarantine_end() - now));
}

}  // namespace lockcore
