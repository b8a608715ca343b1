#include <sim/parts/sim_node.hpp>

#include <algorithm>

namespace sim {
namespace {

using lockcore::command_kind;
using lockcore::reply_status;

constexpr std::size_t copies_max = 8;
constexpr milliseconds wall_at_start{1'000'000};

std::string hex(std::uint64_t bits, std::size_t digits) {
    std::string out(digits, '0');
    for (std::size_t i = digits; i-- > 0; bits >>= 4)
        out[i] = "0123456789abcdef"[bits & 15];
    return out;
}

std::string listed(const std::vector<hold_number>& ids) {
    std::string out;
    for (const hold_number id : ids)
        out += (out.empty() ? "" : ",") + hex(id, 16);
    return out;
}

}  // namespace

sim_node::sim_node(context& ctx, checkers& check, std::uint32_t index, bool syncs_every_write, drifting_clock clock)
    : ctx_(ctx),
      check_(check),
      index_(index),
      configured_to_sync_(syncs_every_write),
      syncs_every_write_(syncs_every_write),
      clock_(clock) {}

// --- process

void sim_node::start(run_number run) {
    run_ = run;
    marks_ = {};
    marks_.set = std::exchange(sets_at_start_, 0);
    paused_until_ = sim_time{0};
}

void sim_node::crash(restart kind) {
    run_ = 0;
    syncs_every_write_ = configured_to_sync_;
    switch (kind) {
        case restart::keeping:
            ctx_.hit(probe::node_kept_data);
            break;
        case restart::losing:
            ctx_.hit(probe::node_lost_data);
            data_ = {};
            copies_.clear();
            has_older_file_ = false;
            break;
        case restart::older_file:
            ctx_.hit(probe::node_loaded_older_file);
            restore_copy();
            has_older_file_ = true;
            sets_at_start_ = 1;
            break;
        case restart::rolled_back:
            ctx_.hit(probe::node_rolled_back);
            restore_copy();
            // After a loss of data its operator may set appendfsync to `always`.
            if (ctx_.rng.chance(ctx_.config.fsync_switched_per_thousand)) {
                ctx_.hit(probe::fsync_switched);
                configured_to_sync_ = syncs_every_write_ = true;
            }
            break;
    }
}

void sim_node::flush() {
    save_copy();
    data_ = {};
    ++marks_.lost;
    ctx_.hit(probe::node_flushed);
}

void sim_node::replace_data() {
    save_copy();
    ++marks_.lost;
    replaced_at_ = ctx_.now();
    ctx_.hit(probe::node_data_replaced);
    if (ctx_.rng.chance(500)) {
        data_ = copies_[ctx_.rng.below(static_cast<std::uint32_t>(copies_.size()))];
    } else {  // evicted
        data_.leases = {};
        data_.counters = {};
    }
}

void sim_node::end_sync() {
    if (!syncs_every_write_) return;
    ctx_.hit(probe::sync_ended);
    // With appendfsync `always` the disk has only the newest state.
    copies_.clear();
    save_copy();
    syncs_every_write_ = false;
    ++marks_.set;
}

void sim_node::restore_copy() {
    if (copies_.empty()) {
        data_ = {};
        return;
    }
    const std::size_t back_to = ctx_.rng.below(static_cast<std::uint32_t>(copies_.size()));
    data_ = copies_[back_to];
    copies_.resize(back_to + 1);  // later states are lost for good
}

void sim_node::save_copy() {
    if (copies_.size() == copies_max) copies_.erase(copies_.begin() + ctx_.rng.below(copies_max));
    copies_.push_back(data_);
}

milliseconds sim_node::wall() const {
    return wall_at_start + std::chrono::floor<milliseconds>(clock_.of(ctx_.now()) + jumped_);
}

// --- data

sim_node::lease_row* sim_node::live(std::uint32_t resource) {
    lease_row& row = data_.leases[resource];
    if (row.nonce != 0 && wall() > row.expires) row = {};
    return row.nonce != 0 ? &row : nullptr;
}

const sim_node::lease_row* sim_node::live(std::uint32_t resource) const {
    const lease_row& row = data_.leases[resource];
    return row.nonce != 0 && wall() <= row.expires ? &row : nullptr;
}

sim_nonce sim_node::holder_of(std::uint32_t resource) const {
    const lease_row* row = live(resource);
    return row ? row->nonce : 0;
}

bool sim_node::outlives(std::uint32_t resource, milliseconds longest) const {
    const lease_row* row = live(resource);
    return row && row->expires - wall() > longest;
}

std::uint64_t sim_node::eff(resource_set set) {
    std::uint64_t highest = data_.base;
    for_each_resource(set, [&](std::uint32_t r) { highest = std::max(highest, counter_of(r)); });
    return highest;
}

std::string sim_node::lease_text(std::uint32_t resource) const {
    const lease_row* row = live(resource);
    if (!row) return {};
    std::string out = hex(row->nonce, 32) + ' ' + std::to_string(row->token) + ' ' + std::to_string(row->renewals) +
                      ' ' + std::to_string(row->last_ttl.count()) + ' ' + std::to_string(row->held.count()) + " 0 ";
    if (row->keys.empty()) out += '-';
    for (const auto& [key, hold] : row->keys)
        out += (out.back() == ' ' ? "" : ",") + hex(key.key_hash, 16) + hex(key.request_hash, 8) + ':' + hex(hold, 16);
    out += "\np" + std::to_string(row->holder.principal) + '\n';
    if (row->holder.owner != 0) out += "o" + std::to_string(row->holder.owner);
    out += '\n';
    if ((row->resources & (row->resources - 1)) != 0) {
        bool first = true;
        for_each_resource(row->resources, [&](std::uint32_t r) {
            if (!first) out += ' ';
            first = false;
            out += "r" + std::to_string(r);
        });
    }
    out += '\n' + holds_text(*row);
    for (const wake_mark mark : row->marks)
        out += '\1' + hex(mark, 16);
    return out;
}

std::string sim_node::holds_text(const lease_row& row) {
    return listed(row.ids) + '\n' + listed(row.tombstones) + '\n' +
           (row.closed_by != 0 ? hex(row.closed_by, 16) + hex(row.closed_mark, 16) : "");
}

milliseconds sim_node::time_left(std::uint32_t resource) const {
    const lease_row* row = live(resource);
    return row ? row->expires - wall() : milliseconds{0};
}

// --- the scripts

reply sim_node::execute(const request& q) {
    switch (q.kind) {
        case request_kind::identify:
            return identify(q);
        case request_kind::readmit:
            return readmit(q);
        case request_kind::delete_admission:
            return delete_admission();
        case request_kind::ping: {
            reply pong;
            pong.kind = request_kind::ping;
            return pong;
        }
        case request_kind::lease:
            break;
    }
    reply out;
    out.kind = request_kind::lease;
    // Commands that only remove or read a lease do not compare the marks.
    const bool gives = q.command != command_kind::release && q.command != command_kind::undo &&
                       q.command != command_kind::look && q.command != command_kind::list;
    const bool changed = gives && data_.marks != marks_ && !ctx_.is_active(mutation::marks_not_compared);
    if ((data_.run != q.run || changed) && !ctx_.is_active(mutation::vote_unadmitted)) {
        out.lease.status = reply_status::not_admitted;
        ctx_.hit(probe::not_admitted_found);
        return out;
    }
    const bool writes = q.command != command_kind::inspect && q.command != command_kind::look;
    if (writes && ctx_.rng.chance(120)) save_copy();
    switch (q.command) {
        case command_kind::acquire:
            out.lease = acquire(q);
            break;
        case command_kind::confirm:
            out.lease = confirm(q);
            break;
        case command_kind::renew:
        case command_kind::hold:
            out.lease = renew(q);
            break;
        case command_kind::inspect:
            out.lease = inspect(q);
            break;
        case command_kind::look:
            out.lease = look(q);
            break;
        case command_kind::list:
            break;  // covered by tests/integration
        case command_kind::top_up:
            out.lease = top_up(q);
            break;
        case command_kind::close:
            out.lease = close(q);
            break;
        case command_kind::release:
        case command_kind::undo:
            out.lease = release(q);
            break;
    }
    ctx_.note("node does", index_ * 10 + static_cast<std::uint64_t>(q.command), q.nonce,
              static_cast<std::uint64_t>(out.lease.status), out.lease.value);
    return out;
}

// --- admission

reply sim_node::identify(const request& q) {
    if (data_.claim == 0) data_.claim = q.claim;
    reply out;
    out.kind = request_kind::identify;
    out.live_run = run_;
    out.admitted_run = data_.run;
    out.claim = data_.claim;
    out.base = data_.base;
    out.syncs_every_write = syncs_every_write_;
    out.kept_unsynced = data_.kept_unsynced;
    out.marks = marks_;
    out.admitted_marks = data_.marks;
    ctx_.note("node identifies", index_, run_, data_.run, data_.claim);
    return out;
}

reply sim_node::readmit(const request& q) {
    reply out;
    out.kind = request_kind::readmit;
    const bool any = ctx_.is_active(mutation::readmit_any_claim);
    if (run_ != q.run || (marks_ != q.marks && !any)) {
        out.readmitted = reply::readmission::gone;
    } else if (data_.run == q.run) {
        out.readmitted = reply::readmission::already;
        ctx_.hit(probe::readmit_already);
        if (data_.marks.lost == marks_.lost) data_.marks = marks_;
        data_.kept_unsynced = data_.kept_unsynced || !q.syncs;
    } else if (data_.claim != q.claim && !any) {
        out.readmitted = reply::readmission::gone;
        ctx_.hit(probe::readmit_gone);
    } else {
        out.readmitted = reply::readmission::ok;
        ctx_.hit(probe::readmit_ok);
        save_copy();
        has_older_file_ = false;
        data_.run = q.run;
        data_.marks = marks_;
        data_.kept_unsynced = !q.syncs;
        data_.base = ctx_.is_active(mutation::epoch_zero) ? 0 : q.base;
        if (ctx_.rng.chance(500)) save_copy();
        for (std::uint32_t r = 0; r < sim_resources_max; ++r) {
            if (live(r)) ctx_.hit(probe::old_lease_survived_readmission);
        }
    }
    ctx_.note("node readmits", index_, q.run, q.base >> 32, static_cast<std::uint64_t>(out.readmitted));
    return out;
}

reply sim_node::delete_admission() {
    data_.run = 0;
    data_.claim = 0;
    ctx_.hit(probe::admission_deleted);
    reply out;
    out.kind = request_kind::delete_admission;
    return out;
}

}  // namespace sim
