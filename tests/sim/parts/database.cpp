#include <sim/parts/database.hpp>

#include <algorithm>

namespace sim {
namespace {

constexpr std::size_t earlier_max = 6;
/// sql/schema/065: more epochs than can have been drawn in what was lost.
constexpr std::uint64_t epochs_lost_max = 1'024;

}  // namespace

database::database(context& ctx, checkers& check) : ctx_(ctx), check_(check), servers_(1) {
    servers_[0].now.units.fill(units_at_start);
}

// --- servers

/// Keeps the state for servers that replace this one.
void database::committed(server s) {
    // A register without a record of each node promises no exclusion after a loss (docs/protocol.md, "Not promised").
    if (!ctx_.config.database_fails() || servers_[s].now.nodes.size() < ctx_.config.nodes) return;
    auto& earlier = servers_[s].earlier;
    if (!earlier.empty() && !ctx_.rng.chance(150)) return;
    if (earlier.size() == earlier_max) earlier.erase(earlier.begin() + ctx_.rng.below(earlier_max));
    earlier.push_back(servers_[s].now);
}

bool database::replace(replacement kind) {
    std::vector<server> sources;
    for (server s = 0; s < servers_.size(); ++s) {
        const bool usual = s == newest() || (kind == replacement::promotion && ctx_.rng.chance(400));
        if (usual && !servers_[s].earlier.empty()) sources.push_back(s);
    }
    if (sources.empty()) return false;
    const server source = sources[ctx_.rng.below(static_cast<std::uint32_t>(sources.size()))];
    const auto& earlier = servers_[source].earlier;
    primary next;
    next.live = servers_[source].live;
    // Half of them have all but the last transactions.
    const auto states = static_cast<std::uint32_t>(earlier.size());
    next.now = earlier[ctx_.rng.chance(500) ? states - 1 : ctx_.rng.below(states)];
    next.is_dump = kind == replacement::dump;
    if (kind == replacement::promotion) ++next.live.timeline;
    if (kind == replacement::dump) next.live.system = static_cast<std::uint32_t>(servers_.size()) + 1;
    next.earlier.push_back(next.now);
    servers_.push_back(std::move(next));
    const server s = newest();
    ctx_.note("database is replaced", source, s, static_cast<std::uint64_t>(kind), servers_[s].now.epoch);
    ctx_.hit(kind == replacement::promotion ? probe::database_promoted
             : kind == replacement::dump    ? probe::dump_loaded
                                            : probe::snapshot_put_back);
    if (servers_[s].now.pending.id != 0) ctx_.hit(probe::replaced_during_change);
    check_.server_live(s);
    if (kind == replacement::put_back) fence_all(s);
    return true;
}

bool database::is_replaced(server s) const {
    return std::any_of(servers_.begin() + s + 1, servers_.end(), [](const primary& p) { return p.begun; });
}

// --- the register

std::optional<lockcore::drawn_epoch> database::draw_epoch(server s, const lockcore::epoch_request& r) {
    if (is_replaced(s) || (!lets_in(s) && !ctx_.is_active(mutation::draws_in_any_generation))) return std::nullopt;
    data& now = servers_[s].now;
    std::string life = r.life;
    if (ctx_.is_active(mutation::one_epoch_per_process)) life = life.substr(0, life.find('/'));
    const auto found = now.nodes.find(r.node_name);
    lockcore::drawn_epoch drawn;
    drawn.repeated = !life.empty() && found != now.nodes.end() && found->second.life == life;
    if (drawn.repeated) {
        drawn.value = found->second.latest_epoch;
        found->second.synced = found->second.synced && r.synced;
        ctx_.hit(probe::draw_repeated);
    } else {
        now.epoch = std::max({now.epoch, value_of(r.highest_observed), now.floor}) + 1;
        drawn.value = lockcore::epoch{now.epoch};
        if (!life.empty()) now.nodes[r.node_name] = {true, drawn.value, life, r.synced};
    }
    ctx_.note("epoch is drawn", now.epoch, drawn.repeated, value_of(r.highest_observed), s);
    committed(s);
    return drawn;
}

lockcore::node_record database::find_node(server s, const std::string& name) const {
    const auto found = servers_[s].now.nodes.find(name);
    return found == servers_[s].now.nodes.end() ? lockcore::node_record() : found->second;
}

void database::note_unsynced(server s, const std::string& name) {
    const auto found = servers_[s].now.nodes.find(name);
    if (found != servers_[s].now.nodes.end()) found->second.synced = false;
}

// --- the storage generation

bool database::lets_in(server s) const {
    const auto& stored = servers_[s].now.stored;
    return stored && stored->timeline == servers_[s].live.timeline;
}

database::generation database::state_of(server s) const {
    return {servers_[s].now.stored == servers_[s].live, lockcore::epoch{servers_[s].now.floor}};
}

std::optional<lockcore::storage_floor> database::begin_generation_change(server s, lockcore::epoch seen) {
    primary& p = servers_[s];
    data& now = p.now;
    if (now.stored == p.live) return std::nullopt;
    if (now.stored && now.stored->system != p.live.system && !ctx_.is_active(mutation::change_keeps_pair))
        now.stored.reset();
    if (is_replaced(s)) return std::nullopt;  // it would go on, which is not promised
    const bool is_same_pair = now.pending.target == p.live || ctx_.is_active(mutation::pending_of_any_pair);
    if (now.pending.id != 0 && is_same_pair && now.pending.epoch >= value_of(seen)) {
        ctx_.hit(probe::change_continued);
    } else {
        now.epoch = std::max({now.epoch, now.floor, value_of(seen)}) + epochs_lost_max;
        now.pending = {++changes_, now.epoch, p.live};
        check_.generation_begun(s);
    }
    p.begun = true;
    ctx_.note("change of generation", s, now.pending.id, now.pending.epoch, value_of(seen));
    committed(s);
    return lockcore::storage_floor{lockcore::epoch{now.pending.epoch}, "change-" + std::to_string(now.pending.id)};
}

bool database::finish_generation_change(server s, const std::string& change_id) {
    primary& p = servers_[s];
    data& now = p.now;
    const bool is_pending = now.pending.id != 0 && "change-" + std::to_string(now.pending.id) == change_id;
    const bool is_same_pair = now.pending.target == p.live || ctx_.is_active(mutation::pending_of_any_pair);
    ctx_.note("change is finished", s, now.pending.id, now.pending.epoch, is_pending && is_same_pair);
    if (!is_pending || !is_same_pair) return false;
    now.floor = now.pending.epoch;
    now.stored = p.live;
    now.pending = {};
    for (auto& [name, node] : now.nodes)
        node.synced = false;
    ctx_.hit(probe::change_finished);
    check_.generation_finished(s, now.floor << 32);
    committed(s);
    return true;
}

void database::fence_all(server s) {
    data& now = servers_[s].now;
    now.stored.reset();
    if (!ctx_.is_active(mutation::fence_all_keeps_pending)) now.pending = {};
}

std::vector<std::uint64_t> database::find_lost_writes(server s, const std::vector<std::uint64_t>& write_ids) const {
    std::vector<std::uint64_t> lost;
    std::ranges::copy_if(write_ids, std::back_inserter(lost),
                         [&](std::uint64_t id) { return !servers_[s].now.writes.contains(id); });
    return lost;
}

// --- the guard and the shop

bool database::execute(server s, shop_statement& statement) {
    data& now = servers_[s].now;
    const std::uint32_t r = statement.resource;
    if (!lets_in(s) && !ctx_.is_active(mutation::guard_ignores_generation)) {
        ctx_.hit(probe::refused_by_generation);
        return false;
    }
    if (statement.token < now.floor << 32 && !ctx_.is_active(mutation::guard_ignores_floor)) {
        ctx_.hit(probe::refused_by_floor);
        return false;
    }
    if (statement.token < now.fence[r] && !ctx_.is_active(mutation::guard_accepts_any)) {
        ctx_.hit(statement.writes ? probe::stale_write_refused : probe::stale_read_refused);
        return false;
    }
    const bool raises = statement.writes || !ctx_.is_active(mutation::guard_read_keeps_fence);
    if (raises) now.fence[r] = std::max(now.fence[r], statement.token);
    if (statement.writes) {
        now.units[r] = statement.units;
        ++now.sold[r];
        if (statement.write_id != 0) now.writes.insert(statement.write_id);
    }
    statement.units = now.units[r];
    if (raises) check_.guard_accepted(s, r, statement.token);
    // What is written to a server that was replaced is lost.
    if (s == newest()) check_.stock_counted(r, now.sold[r], units_at_start - now.units[r]);
    committed(s);
    return true;
}

}  // namespace sim
