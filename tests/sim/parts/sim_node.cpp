#include <sim/parts/sim_node.hpp>

#include <algorithm>

namespace sim {
namespace {

using lockcore::command_kind;
using lockcore::node_reply;
using lockcore::reply_status;

constexpr std::uint64_t epoch_size = std::uint64_t{1} << 32;
constexpr std::size_t copies_max = 8;
constexpr milliseconds wall_at_start{1'000'000};
constexpr milliseconds never{1'000'000'000};

node_reply answer(reply_status status, std::uint64_t value = 0, milliseconds remaining = milliseconds{0}) {
    return {status, value, remaining};
}

}  // namespace

sim_node::sim_node(context& ctx, checkers& check, std::uint32_t index, bool syncs_every_write, drifting_clock clock)
    : ctx_(ctx), check_(check), index_(index), syncs_every_write_(syncs_every_write), clock_(clock) {}

// --- life

void sim_node::start(run_number run) {
    run_ = run;
    started_ = clock_.of(ctx_.now()) + jumped_;
    paused_until_ = sim_time{0};
}

void sim_node::crash(restart how) {
    run_ = 0;
    switch (how) {
        case restart::keeping:
            ctx_.hit(probe::node_kept_data);
            break;
        case restart::losing:
            ctx_.hit(probe::node_lost_data);
            data_ = {};
            copies_.clear();
            break;
        case restart::rolled_back:
            ctx_.hit(probe::node_rolled_back);
            if (copies_.empty()) {
                data_ = {};
            } else {
                const std::size_t back_to = ctx_.chance.below(static_cast<std::uint32_t>(copies_.size()));
                data_ = copies_[back_to];
                copies_.resize(back_to + 1);  // what came later is gone for good
            }
            if (ctx_.broken(mutation::fsync_switched)) syncs_every_write_ = true;
            break;
    }
}

void sim_node::flush() {
    keep_a_copy();
    data_ = {};
    ctx_.hit(probe::node_flushed);
}

void sim_node::keep_a_copy() {
    if (copies_.size() == copies_max) copies_.erase(copies_.begin() + ctx_.chance.below(copies_max));
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

bool sim_node::keeps_beyond(std::uint32_t resource, milliseconds longest) const {
    const lease_row* row = live(resource);
    return row && row->expires - wall() > longest;
}

std::uint64_t sim_node::eff(resource_set set) {
    std::uint64_t highest = data_.base;
    for_each_resource(set, [&](std::uint32_t r) { highest = std::max(highest, counter_of(r)); });
    return highest;
}

/// A stamp on the node: the lease's owner, token and end. Every write of a token comes through here.
void sim_node::stamp(const request& q, std::uint32_t resource, std::uint64_t token, std::uint32_t renewals) {
    const bool for_ever = ctx_.broken(mutation::lease_without_ttl) && q.command == command_kind::acquire;
    data_.leases[resource] = {q.nonce, token, renewals, wall() + (for_ever ? never : q.ttl)};
    check_.stamped(index_, resource, q.nonce, token);
}

// --- the scripts

reply sim_node::execute(const request& q) {
    switch (q.kind) {
        case request_kind::identify:
            return identify(q);
        case request_kind::readmit:
            return readmit(q);
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
    if (data_.run != q.run && !ctx_.broken(mutation::vote_unadmitted)) {
        out.lease.status = reply_status::not_admitted;
        ctx_.hit(probe::not_admitted_found);
        return out;
    }
    if (q.command != command_kind::inspect && ctx_.chance.chance(120)) keep_a_copy();
    switch (q.command) {
        case command_kind::acquire:
            out.lease = acquire(q);
            break;
        case command_kind::confirm:
            out.lease = confirm(q);
            break;
        case command_kind::renew:
            out.lease = renew(q);
            break;
        case command_kind::inspect:
            out.lease = inspect(q);
            break;
        case command_kind::top_up:
            out.lease = top_up(q);
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

node_reply sim_node::acquire(const request& q) {
    const lease_row* held = nullptr;
    for_each_resource(q.resources, [&](std::uint32_t r) {
        const lease_row* row = live(r);
        if (!row || row->nonce == q.nonce || (q.previous != 0 && row->nonce == q.previous)) return;
        if (!held || row->expires > held->expires) held = row;
    });
    if (held && !ctx_.broken(mutation::acquire_over_held))
        return answer(reply_status::held, held->token, held->expires - wall());
    const std::uint64_t value = std::max(eff(q.resources) + 1, q.hint);
    if (value % epoch_size == 0) return answer(reply_status::overflow);
    for_each_resource(q.resources, [&](std::uint32_t r) {
        std::uint64_t& counter = counter_of(r);
        counter = ctx_.broken(mutation::counters_apart) ? std::max(counter, data_.base) + 1 : value;
        stamp(q, r, value, 0);
    });
    return answer(reply_status::ok, value);
}

node_reply sim_node::confirm(const request& q) {
    bool mine = true;
    for_each_resource(q.resources, [&](std::uint32_t r) {
        const lease_row* row = live(r);
        mine = mine && row && row->nonce == q.nonce;
    });
    if (!mine && !ctx_.broken(mutation::confirm_without_owner)) return answer(reply_status::lost);
    const std::uint64_t highest = eff(q.resources);
    if (highest > q.token && !ctx_.broken(mutation::confirm_past_counter)) return answer(reply_status::stale, highest);
    for_each_resource(q.resources, [&](std::uint32_t r) {
        counter_of(r) = q.token;
        stamp(q, r, q.token, data_.leases[r].renewals);
    });
    return answer(reply_status::ok, q.token);
}

node_reply sim_node::renew(const request& q) {
    bool mine = q.token >= data_.base || ctx_.broken(mutation::renew_below_base);
    std::uint32_t renewals = 0;
    for_each_resource(q.resources, [&](std::uint32_t r) {
        const lease_row* row = live(r);
        if (!row && ctx_.broken(mutation::renew_creates)) return;
        const bool same_token = row && (row->token == q.token || ctx_.broken(mutation::renew_nonce_only));
        if (!row || row->nonce != q.nonce || !same_token) {
            mine = false;
        } else {
            renewals = std::max(renewals, row->renewals);
        }
    });
    if (!mine) return answer(reply_status::lost);
    if (renewals >= q.renewals_max) return answer(reply_status::exhausted, renewals);
    for_each_resource(q.resources, [&](std::uint32_t r) {
        data_.leases[r] = {q.nonce, q.token, renewals + 1, wall() + q.ttl};
    });
    return answer(reply_status::ok, renewals + 1);
}

node_reply sim_node::inspect(const request& q) {
    bool mine = q.token >= data_.base || ctx_.broken(mutation::inspect_below_base);
    milliseconds left = never;
    std::uint32_t renewals = 0;
    for_each_resource(q.resources, [&](std::uint32_t r) {
        const lease_row* row = live(r);
        const bool same_token = row && (row->token == q.token || ctx_.broken(mutation::inspect_nonce_only));
        if (!row || row->nonce != q.nonce || !same_token) {
            mine = false;
        } else {
            left = std::min(left, row->expires - wall());
            renewals = std::max(renewals, row->renewals);
        }
    });
    return mine ? answer(reply_status::ok, renewals, left) : answer(reply_status::lost);
}

node_reply sim_node::top_up(const request& q) {
    bool others = false, missing = false;
    std::uint64_t value = 0;
    for_each_resource(q.resources, [&](std::uint32_t r) {
        const lease_row* row = live(r);
        if (!row) {
            missing = true;
        } else if (row->nonce != q.nonce) {
            others = true;
        } else {
            value = row->token;
        }
    });
    if (others) {
        ctx_.hit(probe::top_up_refused);
        return answer(reply_status::held);
    }
    if (missing) {
        const bool raw = ctx_.broken(mutation::top_up_raw);
        value = raw ? q.token : std::max(eff(q.resources) + 1, q.token);
        if (value % epoch_size == 0) return answer(reply_status::overflow);
        if (!raw) for_each_resource(q.resources, [&](std::uint32_t r) { counter_of(r) = value; });
        ctx_.hit(value == q.token ? probe::top_up_counted : probe::top_up_not_counted);
        for_each_resource(q.resources, [&](std::uint32_t r) { stamp(q, r, value, 0); });
    } else {
        ctx_.hit(probe::top_up_refreshed);
        for_each_resource(q.resources, [&](std::uint32_t r) { data_.leases[r] = {q.nonce, value, 0, wall() + q.ttl}; });
    }
    return answer(reply_status::ok, value);
}

node_reply sim_node::release(const request& q) {
    std::uint32_t deleted = 0, asked = 0;
    for_each_resource(q.resources, [&](std::uint32_t r) {
        ++asked;
        const lease_row* row = live(r);
        if (!row || (row->nonce != q.nonce && !ctx_.broken(mutation::release_anybodys))) return;
        data_.leases[r] = {};
        ++deleted;
    });
    return answer(deleted == asked ? reply_status::ok : reply_status::lost, deleted);
}

// --- being let in

reply sim_node::identify(const request& q) {
    if (data_.claim == 0) data_.claim = q.claim;
    reply out;
    out.kind = request_kind::identify;
    out.live_run = run_;
    out.admitted_run = data_.run;
    out.claim = data_.claim;
    out.base = data_.base;
    // As Redis counts it: the difference of two times cut off to seconds.
    using std::chrono::seconds;
    const auto at_start = std::chrono::floor<seconds>(wall_at_start + started_);
    const auto at_present = std::chrono::floor<seconds>(wall());
    out.uptime = std::max(at_present - at_start, seconds{0});
    out.syncs_every_write = syncs_every_write_;
    ctx_.note("node identifies", index_, run_, data_.run, data_.claim);
    return out;
}

reply sim_node::readmit(const request& q) {
    reply out;
    out.kind = request_kind::readmit;
    if (run_ != q.run) {
        out.readmitted = reply::readmission::gone;
    } else if (data_.run == q.run) {
        out.readmitted = reply::readmission::already;
        ctx_.hit(probe::readmit_already);
    } else if (data_.claim != q.claim && !ctx_.broken(mutation::readmit_any_claim)) {
        out.readmitted = reply::readmission::gone;
        ctx_.hit(probe::readmit_gone);
    } else {
        out.readmitted = reply::readmission::ok;
        ctx_.hit(probe::readmit_ok);
        keep_a_copy();
        data_.run = q.run;
        data_.base = ctx_.broken(mutation::epoch_zero) ? 0 : q.base;
        if (ctx_.chance.chance(500)) keep_a_copy();
        for (std::uint32_t r = 0; r < sim_resources_max; ++r) {
            if (live(r)) ctx_.hit(probe::old_lease_survived_readmission);
        }
    }
    ctx_.note("node readmits", index_, q.run, q.base >> 32, static_cast<std::uint64_t>(out.readmitted));
    return out;
}

}  // namespace sim
