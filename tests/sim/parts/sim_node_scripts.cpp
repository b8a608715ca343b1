// The scripts of lockcore/redis/scripts for leases, one function each.
#include <sim/parts/sim_node.hpp>

#include <algorithm>

namespace sim {
namespace {

using lockcore::command_kind;
using lockcore::node_reply;
using lockcore::reply_status;

constexpr std::uint64_t epoch_size = std::uint64_t{1} << 32;
constexpr milliseconds never{1'000'000'000};

node_reply answer(reply_status status, std::uint64_t value = 0, milliseconds remaining = milliseconds{0}) {
    node_reply r;
    r.status = status;
    r.value = value;
    r.remaining = remaining;
    return r;
}

template <class T>
bool contains(const std::vector<T>& list, const T& item) {
    return std::find(list.begin(), list.end(), item) != list.end();
}

template <class T>
void add_once(std::vector<T>& list, const std::vector<T>& more) {
    for (const T& item : more) {
        if (!contains(list, item)) list.push_back(item);
    }
}

}  // namespace

void sim_node::release_id(lease_row& row, hold_number id) {
    std::erase(row.ids, id);
    if (!contains(row.tombstones, id)) row.tombstones.push_back(id);
    if (row.tombstones.size() > tombstones_max) row.tombstones.erase(row.tombstones.begin());
    if (row.closed_by == id) row.closed_by = 0;
}

/// Writes a new lease with a new token: a stamp. CONFIRM stamps too.
void sim_node::write(const request& q, std::uint32_t resource, std::uint64_t token, std::vector<wake_mark> marks) {
    const bool without_ttl = ctx_.is_active(mutation::lease_without_ttl) && q.command == command_kind::acquire;
    lease_row& row = data_.leases[resource];
    row = {};
    row.nonce = q.nonce;
    row.token = token;
    row.renewals = q.renewals;
    row.ids = {q.hold};
    row.closed_by = q.closed_by;
    row.closed_mark = q.closed_mark;
    row.last_ttl = q.ttl;
    row.held = q.held;
    row.holder = q.holder;
    row.resources = q.resources;
    if (q.key.key_hash != 0) row.keys.emplace_back(q.key, q.hold);
    row.marks = std::move(marks);
    if (q.initial_mark != 0) {
        std::erase(row.marks, q.initial_mark);  // a lease has each mark once
        row.marks.insert(row.marks.begin(), q.initial_mark);
    }
    row.expires = wall() + (without_ttl ? never : q.ttl);
    check_.stamped(index_, resource, q.nonce, token);
}

/// Returns true for the same principal, owner and resources, if the owner is named or the idempotency key is the same.
bool sim_node::is_callers(const lease_row& row, const request& q) const {
    if (!(row.holder == q.holder) || row.resources != q.resources) return false;
    if (q.holder.owner != 0) return true;
    const auto same = [&](const auto& entry) { return entry.first.key_hash == q.key.key_hash; };
    return q.key.key_hash != 0 && std::any_of(row.keys.begin(), row.keys.end(), same);
}

node_reply sim_node::acquire(const request& q) {
    const lease_row* longest = nullptr;
    std::uint32_t asked = 0, taken_over = 0;
    std::vector<hold_number> others;
    for_each_resource(q.resources, [&](std::uint32_t r) {
        ++asked;
        const lease_row* row = live(r);
        if (!row) return;
        if (q.previous != 0 && row->nonce == q.previous) {
            ++taken_over;
            add_once(others, row->ids);
            std::erase(others, q.previous_hold);
        } else if (row->nonce != q.nonce && (!longest || row->expires > longest->expires)) {
            longest = row;
        }
    });
    if (longest && !ctx_.is_active(mutation::acquire_over_held))
        return refuse(q, longest->expires - wall(), longest->token);
    if (!others.empty() && !ctx_.is_active(mutation::hand_over_ignores_holds)) return release_previous_hold(q, others);
    const std::uint64_t value = std::max(eff(q.resources) + 1, q.hint);
    if (value % epoch_size == 0) return answer(reply_status::overflow);
    for_each_resource(q.resources, [&](std::uint32_t r) {
        std::uint64_t& counter = counter_of(r);
        counter = ctx_.is_active(mutation::separate_counters) ? std::max(counter, data_.base) + 1 : value;
        const lease_row* row = live(r);
        write(q, r, value, row && taken_over > 0 ? row->marks : std::vector<wake_mark>());
    });
    node_reply out = answer(reply_status::ok, value);
    out.took_over = taken_over == asked;
    return out;
}

/// Answers OWN or HELD. A waiting caller adds its mark to the lease.
node_reply sim_node::refuse(const request& q, milliseconds left, std::uint64_t token) {
    bool own = true;
    sim_nonce nonce = 0;
    std::string text;
    for_each_resource(q.resources, [&](std::uint32_t r) {
        lease_row* row = live(r);
        if (row && nonce == 0) nonce = row->nonce;
        if (!row || row->nonce != nonce || !is_callers(*row, q)) {
            own = false;
        } else if (text.empty()) {
            text = lease_text(r);  // before the mark is added
        }
        if (row && q.mark != 0 && !contains(row->marks, q.mark) && row->marks.size() < marks_max)
            row->marks.push_back(q.mark);
    });
    node_reply out = answer(own ? reply_status::own : reply_status::held, own ? 0 : token, left);
    if (own) out.text = std::move(text);
    return out;
}

node_reply sim_node::release_previous_hold(const request& q, const std::vector<hold_number>& left) {
    node_reply out = answer(reply_status::other_holds);
    for_each_resource(q.resources, [&](std::uint32_t r) {
        lease_row* row = live(r);
        if (!row || row->nonce != q.previous) return;
        release_id(*row, q.previous_hold);
        row->ids = left;
        out.text = holds_text(*row);
    });
    return out;
}

/// Sets the CLOSE mark if the caller's hold is the only one, or removes the mark of the same attempt.
node_reply sim_node::close(const request& q) {
    bool mine = true, others = false;
    std::string holds;
    for_each_resource(q.resources, [&](std::uint32_t r) {
        const lease_row* row = live(r);
        if (!row || row->nonce != q.nonce) {
            mine = false;
            return;
        }
        if (holds.empty()) holds = holds_text(*row);
        others = others || row->ids.size() > (contains(row->ids, q.hold) ? 1U : 0U);
    });
    if (!mine) return answer(reply_status::lost);
    node_reply out = answer(!q.lift && others ? reply_status::other_holds : reply_status::ok);
    if (out.status == reply_status::other_holds) {
        out.text = holds;
        return out;
    }
    for_each_resource(q.resources, [&](std::uint32_t r) {
        lease_row& row = data_.leases[r];
        if (!q.lift) {
            row.closed_by = q.hold;
            row.closed_mark = q.close_mark;
        } else if (row.closed_by == q.hold && row.closed_mark == q.close_mark) {
            row.closed_by = 0;
        }
        if (out.text.empty()) out.text = holds_text(row);
    });
    return out;
}

node_reply sim_node::confirm(const request& q) {
    bool mine = true;
    milliseconds until = wall() + q.ttl;
    for_each_resource(q.resources, [&](std::uint32_t r) {
        const lease_row* row = live(r);
        mine = mine && row && row->nonce == q.nonce;
        if (mine) until = std::max(until, row->expires);
    });
    if (!mine && !ctx_.is_active(mutation::confirm_without_owner)) return answer(reply_status::lost);
    const std::uint64_t highest = eff(q.resources);
    if (highest > q.token && !ctx_.is_active(mutation::confirm_past_counter))
        return answer(reply_status::stale, highest);
    for_each_resource(q.resources, [&](std::uint32_t r) {
        counter_of(r) = q.token;
        lease_row& row = data_.leases[r];
        row.nonce = q.nonce;
        row.token = q.token;
        row.expires = until;
        check_.stamped(index_, r, q.nonce, q.token);
    });
    return answer(reply_status::ok);
}

/// RENEW, and HOLD, which adds a hold.
node_reply sim_node::renew(const request& q) {
    const bool is_hold = q.command == command_kind::hold;
    bool owned = true, current = q.token >= data_.base || ctx_.is_active(mutation::renew_below_base);
    std::uint32_t renewals = 0;
    milliseconds held{0}, left{0};
    std::vector<hold_number> ids, tombstones;
    hold_number closed_by = 0;
    std::uint64_t closed_mark = 0;
    for_each_resource(q.resources, [&](std::uint32_t r) {
        const lease_row* row = live(r);
        if (!row && ctx_.is_active(mutation::renew_creates)) return;
        if (!row || row->nonce != q.nonce) {
            owned = false;
            return;
        }
        current = current && (row->token == q.token || ctx_.is_active(mutation::renew_nonce_only));
        add_once(ids, row->ids);
        add_once(tombstones, row->tombstones);
        if (row->closed_by != 0) {
            closed_by = row->closed_by;
            closed_mark = row->closed_mark;
        }
        renewals = std::max(renewals, row->renewals);
        held = std::max(held, row->held + std::max(row->last_ttl - (row->expires - wall()), milliseconds{0}));
        left = std::max(left, row->expires - wall());
    });
    const bool closed = is_hold && closed_by != 0;
    const bool released = contains(tombstones, q.hold);
    if (!owned || released || closed || !(current || is_hold)) return answer(reply_status::lost);
    if (is_hold && !contains(ids, q.hold) && ids.size() >= holds_max)
        return current ? answer(reply_status::exhausted, holds_max) : answer(reply_status::lost);
    const milliseconds ttl = ctx_.is_active(mutation::renew_shortens) ? q.ttl : std::max(q.ttl, left);
    if (held + ttl > q.hold_max || (!is_hold && renewals >= q.renewals_max))
        return current ? answer(reply_status::exhausted, is_hold ? 0 : renewals) : answer(reply_status::lost);
    if (!is_hold) ++renewals;
    const bool added = !(is_hold && ctx_.is_active(mutation::hold_not_added));
    if (added && !contains(ids, q.hold)) ids.push_back(q.hold);
    node_reply out = answer(current ? reply_status::ok : reply_status::lost, current ? renewals : 0);
    for_each_resource(q.resources, [&](std::uint32_t r) {
        lease_row& row = data_.leases[r];
        if (row.nonce != q.nonce) {  // only with mutation::renew_creates
            row = {};
            row.nonce = q.nonce;
            row.token = q.token;
        }
        if (ctx_.is_active(mutation::renew_nonce_only)) row.token = q.token;
        row.renewals = renewals;
        row.ids = ids;
        row.tombstones = tombstones;
        row.closed_by = closed_by;
        row.closed_mark = closed_mark;
        row.last_ttl = ttl;
        row.held = held;
        row.expires = wall() + ttl;
        if (is_hold && q.key.key_hash != 0) {
            if (row.keys.size() == keys_max) row.keys.erase(row.keys.begin());
            row.keys.emplace_back(q.key, q.hold);
        }
        if (current && out.text.empty()) out.text = holds_text(row);
    });
    if (current) out.held = held;
    return out;
}

node_reply sim_node::inspect(const request& q) const {
    bool mine = q.token >= data_.base || ctx_.is_active(mutation::inspect_below_base);
    node_reply out = answer(reply_status::ok, 0, never);
    for_each_resource(q.resources, [&](std::uint32_t r) {
        const lease_row* row = live(r);
        const bool same_token = row && (row->token == q.token || ctx_.is_active(mutation::inspect_nonce_only));
        if (!row || row->nonce != q.nonce || !same_token || !contains(row->ids, q.hold)) {
            mine = false;
            return;
        }
        out.remaining = std::min(out.remaining, row->expires - wall());
        out.value = std::max<std::uint64_t>(out.value, row->renewals);
        out.text = holds_text(*row);
        out.ttl = row->last_ttl;
    });
    return mine ? out : answer(reply_status::lost);
}

node_reply sim_node::look(const request& q) const {
    node_reply out = answer(reply_status::lost);
    for_each_resource(q.resources, [&](std::uint32_t r) {
        const lease_row* row = live(r);
        if (!row) return;
        out = answer(reply_status::ok, 0, row->expires - wall());
        out.text = lease_text(r);
    });
    return out;
}

node_reply sim_node::top_up(const request& q) {
    bool others = false, missing = false;
    std::uint64_t value = 0;
    std::vector<hold_number> ids, tombstones;
    for_each_resource(q.resources, [&](std::uint32_t r) {
        const lease_row* row = live(r);
        if (!row) {
            missing = true;
        } else if (row->nonce != q.nonce) {
            others = true;
        } else {
            value = std::max(value, row->token);
            add_once(ids, row->ids);
            add_once(tombstones, row->tombstones);
        }
    });
    if (!contains(tombstones, q.hold)) add_once(ids, {q.hold});
    if (others) {
        ctx_.hit(probe::top_up_refused);
        return answer(reply_status::held);
    }
    if (!missing) {
        ctx_.hit(probe::top_up_found_lease);
        for_each_resource(q.resources, [&](std::uint32_t r) {
            data_.leases[r].ids = ids;
            data_.leases[r].tombstones = tombstones;
        });
        return value >= data_.base ? answer(reply_status::ok, value) : answer(reply_status::lost);
    }
    if (ids.empty()) return answer(reply_status::lost);
    const bool raw = ctx_.is_active(mutation::top_up_ignores_counter);
    value = raw ? q.token : std::max(eff(q.resources) + 1, q.token);
    if (value % epoch_size == 0) return answer(reply_status::overflow);
    if (!raw) for_each_resource(q.resources, [&](std::uint32_t r) { counter_of(r) = value; });
    ctx_.hit(value == q.token ? probe::top_up_counted : probe::top_up_not_counted);
    for_each_resource(q.resources, [&](std::uint32_t r) {
        write(q, r, value, {});
        data_.leases[r].ids = ids;
        data_.leases[r].tombstones = tombstones;
    });
    return answer(reply_status::ok, value);
}

/// Releases a hold, and deletes the lease if no other hold is left.
node_reply sim_node::release(const request& q) {
    std::uint32_t asked = 0, mine = 0;
    const bool any_owner = ctx_.is_active(mutation::release_any_owner);
    const auto is_mine = [&](const lease_row* row) { return row && (row->nonce == q.nonce || any_owner); };
    lease_row merged;
    for_each_resource(q.resources, [&](std::uint32_t r) {
        ++asked;
        const lease_row* row = live(r);
        if (!is_mine(row)) return;
        ++mine;
        add_once(merged.ids, row->ids);
        add_once(merged.tombstones, row->tombstones);
        if (row->closed_by != 0) {
            merged.closed_by = row->closed_by;
            merged.closed_mark = row->closed_mark;
        }
    });
    release_id(merged, q.hold);
    if (q.whole_lease || any_owner || ctx_.is_active(mutation::release_drops_holds)) merged.ids.clear();
    node_reply out = answer(mine == asked ? reply_status::ok : reply_status::lost);
    for_each_resource(q.resources, [&](std::uint32_t r) {
        lease_row* row = live(r);
        if (!is_mine(row)) return;
        if (!merged.ids.empty()) {
            row->ids = merged.ids;
            row->tombstones = merged.tombstones;
            row->closed_by = merged.closed_by;
            row->closed_mark = merged.closed_mark;
            if (q.undone) std::erase_if(row->keys, [&](const auto& entry) { return entry.second == q.hold; });
            return;
        }
        for (const wake_mark mark : row->marks) {
            if (mark == q.mark) continue;
            release_messages_.push_back({mark, row->nonce, r});
            if (out.status == reply_status::ok) ++out.notified_waiters;
        }
        *row = {};
    });
    if (out.status == reply_status::ok) out.text = holds_text(merged);
    return out;
}

}  // namespace sim
