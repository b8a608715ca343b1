#include <sim/world/world.hpp>

namespace sim {
namespace {

drifting_clock draw_clock(context& ctx) {
    const std::int64_t most = ctx.set.drift_ppm;
    return drifting_clock(most == 0 ? 0 : ctx.chance.between(-most, most));
}

std::vector<sim_node> make_nodes(context& ctx, checkers& check) {
    std::vector<sim_node> nodes;
    for (std::uint32_t n = 0; n < ctx.set.nodes; ++n)
        nodes.emplace_back(ctx, check, n, n < ctx.set.always_synced, draw_clock(ctx));
    return nodes;
}

}  // namespace

world::world(options set, bool prints, std::optional<checker> only)
    : ctx_(std::move(set), prints),
      check_(ctx_),
      nodes_(make_nodes(ctx_, check_)),
      net_(ctx_, nodes_),
      epochs_(ctx_),
      shop_(ctx_, check_) {
    if (only) check_.only(*only);
    for (std::uint32_t g = 0; g < ctx_.set.gateways; ++g) {
        gateways_.push_back(
            std::make_unique<sim_gateway>(ctx_, net_, epochs_, check_, *this, nodes_, g, draw_clock(ctx_)));
    }
    clients_.reserve(ctx_.set.clients + ctx_.set.resources);
    for (std::uint32_t c = 0; c < ctx_.set.clients; ++c)
        clients_.emplace_back(ctx_, check_, *this, shop_, c, draw_clock(ctx_));
}

outcome world::run() {
    for (sim_node& node : nodes_)
        node.start(++runs_);
    for (auto& gateway : gateways_)
        gateway->start();
    for (sim_client& client : clients_)
        client.start();
    for (std::size_t f = 0; f < fault_count; ++f)
        plan(static_cast<fault>(f));
    ctx_.events.at(ctx_.set.faults_last, {.kind = event_kind::world_heals});

    while (!ended_ && !check_.found() && !ctx_.events.empty())
        happen(ctx_.events.next());

    outcome out;
    out.set = ctx_.set;
    out.broken = check_.found();
    out.trace_hash = ctx_.record.hash();
    out.unseed = ctx_.chance.next();
    out.events = ctx_.events.scheduled();
    out.probes = ctx_.probes;
    return out;
}

// --- clients and gateways, to each other

bool world::waits_for(const call& c) const {
    return clients_[c.client].waits_for(c);
}

void world::answer(const call& c, const call_answer& a) {
    clients_[c.client].answer(c, a);
}

void world::ask(std::uint32_t gateway, const call& c) {
    calls_.push_back(c);
    ctx_.events.in(ctx_.chance.about(microseconds{200}), {.kind = event_kind::gateway_called,
                                                          .who = static_cast<std::uint8_t>(gateway),
                                                          .a = static_cast<std::uint32_t>(calls_.size() - 1)});
    last_call_[c.client] = {gateway, static_cast<std::uint32_t>(calls_.size() - 1)};
}

void world::drop(std::uint32_t client) {
    const asked last = last_call_[client];
    ctx_.events.in(ctx_.chance.about(microseconds{300}),
                   {.kind = event_kind::call_dropped, .who = static_cast<std::uint8_t>(last.gateway), .a = last.at});
}

// --- events

bool world::put_off(const event& e, std::uint32_t gateway) {
    const sim_gateway& g = *gateways_[gateway];
    if (!g.runs()) return true;
    if (g.paused_until() <= ctx_.now()) return false;
    auto& parked = parked_[gateway];
    if (parked.empty()) {
        ctx_.events.at(g.paused_until(),
                       {.kind = event_kind::gateway_resumes, .who = static_cast<std::uint8_t>(gateway)});
    }
    parked.push_back(e);
    return true;
}

void world::resume(std::uint32_t gateway) {
    const sim_gateway& g = *gateways_[gateway];
    if (g.paused_until() > ctx_.now()) {
        ctx_.events.at(g.paused_until(),
                       {.kind = event_kind::gateway_resumes, .who = static_cast<std::uint8_t>(gateway)});
        return;
    }
    for (const event& e : std::exchange(parked_[gateway], {}))
        ctx_.events.at(ctx_.now(), e);
}

void world::happen(const event& e) {
    switch (e.kind) {
        case event_kind::request_arrives:
            return net_.request_arrives(e.a);
        case event_kind::reply_arrives: {
            if (put_off(e, net_.gateway_of(e.a))) return;
            const network::delivery d = net_.reply_arrives(e.a);
            if (d.arrived) gateways_[d.gateway]->link(d.node).arrived(e.a, d.reply);
            return;
        }
        case event_kind::connection_opens:
            if (put_off(e, net_.gateway_of(e.a))) return;
            return gateways_[net_.gateway_of(e.a)]->link(net_.node_of(e.a)).opened(e.a, net_.opens(e.a));
        case event_kind::connection_ends:
            if (put_off(e, net_.gateway_of(e.a)) || !net_.ends(e.a)) return;
            return gateways_[net_.gateway_of(e.a)]->link(net_.node_of(e.a)).ended(e.a);
        case event_kind::link_acts:
            if (put_off(e, e.who)) return;
            return gateways_[e.who]->link(e.a).acts(e.b, static_cast<lockcore::node_supervisor::action>(e.c));
        case event_kind::link_looks:
            if (put_off(e, e.who)) return;
            return gateways_[e.who]->link(e.a).looks();
        case event_kind::draw_arrives:
            return epochs_.arrives(e.a);
        case event_kind::draw_answered: {
            const epoch_register::call& c = epochs_.answered(e.a);
            if (put_off(e, c.gateway)) return;
            return gateways_[c.gateway]->link(c.node).register_answered(c);
        }
        case event_kind::gateway_called:
            if (put_off(e, e.who)) return;
            return gateways_[e.who]->called(calls_[e.a]);
        case event_kind::call_dropped:
            if (put_off(e, e.who)) return;
            return gateways_[e.who]->dropped(calls_[e.a]);
        case event_kind::waiter_wakes:
            if (put_off(e, e.who)) return;
            return gateways_[e.who]->waiter_wakes(e.a, e.b);
        case event_kind::wake_arrives: {
            if (put_off(e, e.who)) return;
            const network::told_wake& told = net_.wake_arrives(e.a);
            return gateways_[e.who]->told_of_end(told.node, told.what);
        }
        case event_kind::client_wakes:
            return clients_[e.who].wakes(e.a);
        case event_kind::shop_asked:
            return shop_.asked(e.a);
        case event_kind::shop_answered: {
            const shop::visit& v = shop_.answered(e.a);
            return clients_[v.client].shop_answered(v);
        }
        case event_kind::fault_strikes:
            if (healed_) return;
            strike(static_cast<fault>(e.a));
            return plan(static_cast<fault>(e.a));
        case event_kind::node_starts:
            if (!nodes_[e.who].runs()) {
                nodes_[e.who].start(++runs_);
                ctx_.note("node starts", e.who, runs_);
            }
            return;
        case event_kind::node_flushed:
            check_.node_disturbed();
            if (!healed_ && nodes_[e.who].runs()) nodes_[e.who].flush();
            return;
        case event_kind::gateway_resumes:
            return resume(e.who);
        case event_kind::gateway_starts:
            if (!gateways_[e.who]->runs()) gateways_[e.who]->start();
            return;
        case event_kind::world_heals:
            return heal();
        case event_kind::world_ends:
            return look_whether_well(e.a != 0);
    }
}

// --- faults

void world::plan(fault f) {
    const sim_time pace = ctx_.set.pace[static_cast<std::size_t>(f)];
    if (pace == sim_time{0}) return;
    ctx_.events.in(ctx_.chance.about(pace), {.kind = event_kind::fault_strikes, .a = static_cast<std::uint32_t>(f)});
}

void world::strike(fault f) {
    const std::uint32_t n = ctx_.chance.below(ctx_.set.nodes), g = ctx_.chance.below(ctx_.set.gateways);
    ctx_.note("fault", static_cast<std::uint64_t>(f), n, g);
    switch (f) {
        case fault::cut_connection:
            return net_.cut_any();
        case fault::block_path:
            return net_.block_any(ctx_.now() + ctx_.chance.about(ctx_.set.block));
        case fault::crash_node:
            return crash_node();
        case fault::flush_node: {
            const std::uint32_t flushed = ctx_.set.forgets.value_or(n);
            check_.node_disturbed();
            if (nodes_[flushed].runs()) nodes_[flushed].flush();
            // Some do it twice.
            if (ctx_.chance.chance(200)) {
                ctx_.events.in(ctx_.chance.about(microseconds(ctx_.set.max_ttl) / 8),
                               {.kind = event_kind::node_flushed, .who = static_cast<std::uint8_t>(flushed)});
            }
            return;
        }
        case fault::replace_data:
            check_.node_disturbed();
            if (nodes_[n].runs()) nodes_[n].replace_data();
            return;
        case fault::end_sync:
            check_.node_disturbed();
            if (nodes_[n].runs()) nodes_[n].end_sync();
            return;
        case fault::pause_node:
            if (nodes_[n].runs()) nodes_[n].pause_until(ctx_.now() + ctx_.chance.about(ctx_.set.pause));
            return;
        case fault::pause_gateway:
            if (gateways_[g]->runs()) gateways_[g]->pause_until(ctx_.now() + ctx_.chance.about(ctx_.set.pause));
            return;
        case fault::crash_gateway:
            if (!gateways_[g]->runs()) return;
            gateways_[g]->crash();
            ctx_.events.in(ctx_.chance.about(ctx_.set.outage),
                           {.kind = event_kind::gateway_starts, .who = static_cast<std::uint8_t>(g)});
            return;
        case fault::close_register:
            // Every second strike lets it work again.
            if (ctx_.chance.chance(500)) {
                epochs_.close();
            } else {
                epochs_.open();
            }
            return;
        case fault::jump_clock: {
            const auto far = microseconds(ctx_.set.max_ttl) * 3;
            const microseconds by = ctx_.chance.between(-far, far);
            jumps_ += std::max(by, -by);
            nodes_[n].jump_clock(by);
            return ctx_.hit(probe::clock_jumped);
        }
        case fault::count_:
            return;
    }
}

void world::crash_node() {
    const std::uint32_t n = ctx_.chance.below(ctx_.set.nodes);
    sim_node& node = nodes_[n];
    if (!node.runs()) return;
    const options& o = ctx_.set;
    // A node that syncs every write keeps what it has, or loses its disk.
    const std::uint32_t rolls_back = node.syncs_every_write() ? 0 : o.restart_rolls_back;
    // One that forgot and crashes before anybody looked is let in as if it had not (README.md of lockcore, "Not
    // promised"): here it loses its data as well.
    const bool unseen = node.forgot_unseen();
    const std::uint32_t drawn = ctx_.chance.below(std::max(o.restart_keeps + o.restart_loses + rolls_back, 1U));
    const auto how = unseen || drawn < o.restart_loses      ? sim_node::restart::losing
                     : drawn < o.restart_loses + rolls_back ? sim_node::restart::rolled_back
                                                            : sim_node::restart::keeping;
    check_.node_disturbed();
    node.crash(how);
    net_.node_crashed(n);
    ctx_.note("node crashes", n, static_cast<std::uint64_t>(how));
    ctx_.events.in(ctx_.chance.about(o.outage), {.kind = event_kind::node_starts, .who = static_cast<std::uint8_t>(n)});
}

// --- healing

/// How long it may take until somebody can take a lease on everything, by the longest of what has to come one after the
/// other.
sim_time world::healing_lasts() const {
    const options& o = ctx_.set;
    // Late ones that were on their way.
    const sim_time messages = o.slow * 8 + o.block * 8 + 4 * sim_time(o.max_ttl);
    const sim_time noticed = 3 * sim_time(o.node_dead_after) + std::chrono::seconds{2};
    const sim_time admitted = 3 * sim_time(lockcore::node_supervisor::look_again) + sim_time(o.max_ttl);
    const sim_time free_again = 2 * sim_time(o.max_ttl) + jumps_;
    return messages + noticed + admitted + free_again + std::chrono::seconds{3};
}

void world::heal() {
    healed_ = true;
    ctx_.note("world heals");
    net_.heal();
    epochs_.heal();
    for (std::uint32_t n = 0; n < ctx_.set.nodes; ++n) {
        nodes_[n].resume();
        if (!nodes_[n].runs())
            ctx_.events.in(milliseconds{1}, {.kind = event_kind::node_starts, .who = static_cast<std::uint8_t>(n)});
    }
    for (std::uint32_t g = 0; g < ctx_.set.gateways; ++g) {
        gateways_[g]->resume();
        resume(g);
        if (!gateways_[g]->runs())
            ctx_.events.in(milliseconds{1}, {.kind = event_kind::gateway_starts, .who = static_cast<std::uint8_t>(g)});
    }
    for (sim_client& client : clients_)
        client.stop();
    for (std::uint32_t r = 0; r < ctx_.set.resources; ++r) {
        clients_.emplace_back(ctx_, check_, *this, shop_, ctx_.set.clients + r, draw_clock(ctx_));
        clients_.back().insist_on(r);
    }
    ctx_.events.in(healing_lasts(), {.kind = event_kind::world_ends});
    // Looked at in between, for a world that is well again soon has nothing more to tell.
    for (int k = 1; k <= 20; ++k)
        ctx_.events.in(healing_lasts() * k / 21, {.kind = event_kind::world_ends, .a = 1});
}

void world::look_whether_well(bool may_wait) {
    bool all = true;
    for (std::uint32_t r = 0; r < ctx_.set.resources; ++r) {
        if (clients_[ctx_.set.clients + r].got_it()) continue;
        all = false;
        if (!may_wait) check_.not_granted_after_healing(r);
    }
    ended_ = all || !may_wait;
    if (!ended_ || ctx_.set.clocks_jump) return;
    for (std::uint32_t n = 0; n < ctx_.set.nodes; ++n) {
        for (std::uint32_t r = 0; r < ctx_.set.resources; ++r) {
            if (nodes_[n].keeps_beyond(r, ctx_.set.max_ttl))
                check_.key_left(n, r, nodes_[n].holder_of(r), "it lives longer than any lease may");
        }
    }
}

outcome run_seed(std::uint64_t seed, const wishes& w, bool prints) {
    world one(draw_options(seed, w), prints, w.only);
    return one.run();
}

}  // namespace sim
