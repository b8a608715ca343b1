#include <sim/world/world.hpp>

#include <algorithm>

namespace sim {
namespace {

/// How long after its wait a cancelled request may still be granted at another gateway, and its lease be looked for.
constexpr sim_time cancellation_lasts = std::chrono::seconds{14};
/// A run has some thousand events.
constexpr std::uint64_t events_max = 1'000'000;

drifting_clock draw_clock(context& ctx) {
    const std::int64_t most = ctx.config.drift_ppm;
    return drifting_clock(most == 0 ? 0 : ctx.rng.between(-most, most));
}

network::node_list make_nodes(context& ctx, checkers& check) {
    network::node_list nodes;
    for (std::uint32_t n = 0; n < ctx.config.nodes; ++n)
        nodes.push_back(std::make_unique<sim_node>(ctx, check, n, n < ctx.config.always_synced, draw_clock(ctx)));
    return nodes;
}

}  // namespace

world::world(options config, bool prints, std::optional<checker> only)
    : ctx_(std::move(config), prints),
      check_(ctx_),
      nodes_(make_nodes(ctx_, check_)),
      net_(ctx_, nodes_),
      db_(ctx_, check_),
      sessions_(ctx_.config.gateways, gateway_sessions(ctx_, db_)),
      epochs_(ctx_, db_, sessions_),
      shop_(ctx_, db_, epochs_) {
    if (only) check_.report_only(*only);
    for (std::uint32_t g = 0; g < ctx_.config.gateways; ++g) {
        gateways_.push_back(
            std::make_unique<sim_gateway>(ctx_, net_, db_, epochs_, sessions_[g], check_, *this, g, draw_clock(ctx_)));
    }
    clients_.reserve(ctx_.config.clients + ctx_.config.resources);
    for (std::uint32_t c = 0; c < ctx_.config.clients; ++c)
        clients_.emplace_back(ctx_, check_, *this, c, draw_clock(ctx_));
}

outcome world::run() {
    for (const auto& node : nodes_)
        node->start(++runs_);
    for (auto& gateway : gateways_)
        gateway->start();
    for (sim_client& client : clients_)
        client.start();
    for (std::size_t f = 0; f < fault_count; ++f)
        schedule_fault(static_cast<fault>(f));
    ctx_.events.schedule_at(ctx_.config.faults_end, {.kind = event_kind::world_heals});

    while (!ended_ && !check_.found() && !ctx_.events.empty()) {
        dispatch_event(ctx_.events.next());
        if (ctx_.events.scheduled() > events_max) check_.run_does_not_end();
    }

    outcome out;
    out.config = ctx_.config;
    out.broken_promise = check_.found();
    out.trace_hash = ctx_.record.hash();
    out.unseed = ctx_.rng.next();
    out.events = ctx_.events.scheduled();
    out.probes = ctx_.probes;
    return out;
}

// --- calls between clients and gateways

void world::answer(const call& c, lockcore::call_result result) {
    clients_[c.client].answer(c, std::move(result));
}

void world::ask(std::uint32_t gateway, call c) {
    const std::uint32_t client = c.client;
    calls_.push_back(std::move(c));
    const auto index = static_cast<std::uint32_t>(calls_.size() - 1);
    ctx_.events.schedule_in(
        ctx_.rng.draw_around(microseconds{200}),
        {.kind = event_kind::gateway_called, .actor = static_cast<std::uint8_t>(gateway), .a = index});
    last_call_[client] = {gateway, index};
}

void world::cancel_call(std::uint32_t client) {
    const placed_call last = last_call_[client];
    ctx_.events.schedule_in(
        ctx_.rng.draw_around(microseconds{300}),
        {.kind = event_kind::call_dropped, .actor = static_cast<std::uint8_t>(last.gateway), .a = last.index});
}

void world::request_cancelled(const lockcore::acquire_request& request, bool everywhere) {
    if (everywhere) check_cancelled(request);
    cancelled_.push_back(request);
    ctx_.events.schedule_in(
        request.wait + cancellation_lasts,
        {.kind = event_kind::cancellation_is_over, .a = static_cast<std::uint32_t>(cancelled_.size() - 1)});
}

void world::check_cancelled(const lockcore::acquire_request& request) {
    for_each_resource(set_of(request), [&](std::uint32_t r) {
        const auto has_lease = [&](const auto& node) { return node->has_lease_of(request, r); };
        const auto found = std::ranges::find_if(nodes_, has_lease);
        if (found == nodes_.end() || std::ranges::count_if(nodes_, has_lease) <= ctx_.config.nodes / 2) return;
        check_.key_left(static_cast<std::uint32_t>(found - nodes_.begin()), r, 0, "its request was cancelled");
    });
}

// --- events

bool world::defer_event(const event& e, std::uint32_t gateway) {
    const sim_gateway& g = *gateways_[gateway];
    if (!g.runs()) return true;
    if (g.paused_until() <= ctx_.now()) return false;
    auto& deferred = deferred_[gateway];
    if (deferred.empty()) {
        ctx_.events.schedule_at(g.paused_until(),
                                {.kind = event_kind::gateway_resumes, .actor = static_cast<std::uint8_t>(gateway)});
    }
    deferred.push_back(e);
    return true;
}

void world::resume(std::uint32_t gateway) {
    const sim_gateway& g = *gateways_[gateway];
    if (g.paused_until() > ctx_.now()) {
        ctx_.events.schedule_at(g.paused_until(),
                                {.kind = event_kind::gateway_resumes, .actor = static_cast<std::uint8_t>(gateway)});
        return;
    }
    for (const event& e : std::exchange(deferred_[gateway], {}))
        ctx_.events.schedule_at(ctx_.now(), e);
}

void world::dispatch_event(const event& e) {
    switch (e.kind) {
        case event_kind::request_arrives:
            return net_.request_arrives(e.a);
        case event_kind::reply_arrives: {
            if (defer_event(e, net_.gateway_of(e.a))) return;
            const std::optional<reply> arrived = net_.reply_arrives(e.a);
            if (arrived) gateways_[net_.gateway_of(e.a)]->on_reply(e.a, *arrived);
            return;
        }
        case event_kind::connection_opens:
            if (defer_event(e, net_.gateway_of(e.a))) return;
            return gateways_[net_.gateway_of(e.a)]->on_opened(e.a, net_.opens(e.a));
        case event_kind::connection_ends:
            if (defer_event(e, net_.gateway_of(e.a)) || !net_.ends(e.a)) return;
            return gateways_[net_.gateway_of(e.a)]->on_ended(e.a);
        case event_kind::gateway_tick:
            if (!defer_event(e, e.actor)) gateways_[e.actor]->on_tick(e.a);
            return;
        case event_kind::gateway_timer:
            if (!defer_event(e, e.actor)) gateways_[e.actor]->on_timer(e.a, e.b);
            return;
        case event_kind::gateway_flush:
            if (!defer_event(e, e.actor)) gateways_[e.actor]->on_flush(e.a);
            return;
        case event_kind::draw_arrives:
            return epochs_.arrives(e.a);
        case event_kind::draw_answered: {
            const epoch_register::call& c = epochs_.answered(e.a);
            if (defer_event(e, c.gateway)) return;
            return gateways_[c.gateway]->on_register_answer(c);
        }
        case event_kind::gateway_called:
            if (defer_event(e, e.actor)) return;
            return gateways_[e.actor]->on_call(calls_[e.a]);
        case event_kind::call_dropped:
            if (defer_event(e, e.actor)) return;
            return gateways_[e.actor]->on_client_gone(calls_[e.a]);
        case event_kind::release_message_arrives: {
            if (defer_event(e, e.actor)) return;
            const network::release_delivery& delivered = net_.release_message_arrives(e.a);
            return gateways_[e.actor]->on_release_message(delivered.node, delivered.message);
        }
        case event_kind::client_timer:
            return clients_[e.actor].on_timer(e.a);
        case event_kind::shop_asked:
            return ask_shop(e);
        case event_kind::shop_answered:
            return answer_shop(e);
        case event_kind::storage_asked:
            return gateways_[e.actor]->on_storage_asked(e.a, e.b);
        case event_kind::storage_answered:
            if (!defer_event(e, e.actor)) gateways_[e.actor]->on_storage_answered(e.a, e.b);
            return;
        case event_kind::route_changes:
            return change_route(e.a);
        case event_kind::server_stops:
            if (e.a != db_.newest()) db_.stop(e.a);
            return;
        case event_kind::fault_due:
            if (healed_) return;
            inject_fault(static_cast<fault>(e.a));
            return schedule_fault(static_cast<fault>(e.a));
        case event_kind::node_starts:
            if (!nodes_[e.actor]->runs()) {
                nodes_[e.actor]->start(++runs_);
                ctx_.note("node starts", e.actor, runs_);
            }
            return;
        case event_kind::node_flushed:
            check_.node_fault_injected();
            if (!healed_ && nodes_[e.actor]->runs() && may_forget(e.actor)) nodes_[e.actor]->flush();
            return;
        case event_kind::gateway_resumes:
            return resume(e.actor);
        case event_kind::gateway_starts:
            if (!gateways_[e.actor]->runs()) gateways_[e.actor]->start();
            return;
        case event_kind::cancellation_is_over:
            return check_cancelled(cancelled_[e.a]);
        case event_kind::world_heals:
            return heal();
        case event_kind::world_ends:
            return check_healed(e.a != 0);
    }
}

// --- faults

void world::schedule_fault(fault f) {
    const sim_time mean_interval = ctx_.config.mean_interval[static_cast<std::size_t>(f)];
    if (mean_interval == sim_time{0}) return;
    ctx_.events.schedule_in(ctx_.rng.draw_around(mean_interval),
                            {.kind = event_kind::fault_due, .a = static_cast<std::uint32_t>(f)});
}

void world::inject_fault(fault f) {
    const std::uint32_t n = ctx_.rng.below(ctx_.config.nodes), g = ctx_.rng.below(ctx_.config.gateways);
    ctx_.note("fault", static_cast<std::uint64_t>(f), n, g);
    switch (f) {
        case fault::cut_connection:
            if (ctx_.rng.chance(100)) nodes_[n]->server().execute({"SCRIPT", "FLUSH"});
            return net_.cut_random_connection();
        case fault::block_path:
            return net_.block_random_path(ctx_.now() + ctx_.rng.draw_around(ctx_.config.block));
        case fault::crash_node:
            return crash_node();
        case fault::flush_node: {
            const std::uint32_t flushed = ctx_.config.flushed_node.value_or(n);
            if (!may_forget(flushed)) return;
            check_.node_fault_injected();
            if (nodes_[flushed]->runs()) nodes_[flushed]->flush();
            // Some nodes are flushed a second time.
            if (ctx_.rng.chance(200)) {
                ctx_.events.schedule_in(
                    ctx_.rng.draw_around(microseconds(ctx_.config.max_ttl) / 8),
                    {.kind = event_kind::node_flushed, .actor = static_cast<std::uint8_t>(flushed)});
            }
            return;
        }
        case fault::replace_data:
            check_.node_fault_injected();
            if (nodes_[n]->runs()) nodes_[n]->replace_data();
            return;
        case fault::end_sync:
            check_.node_fault_injected();
            if (nodes_[n]->runs()) nodes_[n]->end_sync();
            return;
        case fault::pause_node:
            if (nodes_[n]->runs()) nodes_[n]->pause_until(ctx_.now() + ctx_.rng.draw_around(ctx_.config.pause));
            return;
        case fault::pause_gateway:
            if (gateways_[g]->runs()) gateways_[g]->pause_until(ctx_.now() + ctx_.rng.draw_around(ctx_.config.pause));
            return;
        case fault::crash_gateway:
            if (!gateways_[g]->runs()) return;
            gateways_[g]->crash();
            ctx_.events.schedule_in(ctx_.rng.draw_around(ctx_.config.outage),
                                    {.kind = event_kind::gateway_starts, .actor = static_cast<std::uint8_t>(g)});
            return;
        case fault::close_register:
            // Half of these faults open the register again.
            if (ctx_.rng.chance(500)) {
                epochs_.close();
            } else {
                epochs_.open();
            }
            return;
        case fault::jump_clock: {
            const auto far = microseconds(ctx_.config.max_ttl) * 3;
            // A key that is not corrected outlives healing_bound().
            constexpr microseconds far_back = std::chrono::minutes{2};
            const microseconds offset =
                ctx_.config.clocks_go_back ? ctx_.rng.between(-far_back, -far_back / 100) : ctx_.rng.between(-far, far);
            nodes_[n]->jump_clock(offset);
            return ctx_.hit(probe::clock_jumped);
        }
        case fault::replace_database:
            return replace_database();
        case fault::count_:
            return;
    }
}

void world::crash_node() {
    const std::uint32_t n = ctx_.rng.below(ctx_.config.nodes);
    sim_node& node = *nodes_[n];
    if (!node.runs()) return;
    const options& o = ctx_.config;
    // A node that syncs every write keeps its data or loses its whole disk.
    const std::uint32_t rolls_back = node.syncs_every_write() ? 0 : o.restart_rolls_back;
    // If a node loses data or loads an older file,
    // and crashes before a gateway has inspected it, nothing shows the loss (docs/protocol.md, "Not promised").
    // The simulation lets such a node lose all its data.
    const bool unseen =
        node.has_unnoticed_loss() || (node.has_older_data() && epochs_.says_synced("n" + std::to_string(n)));
    const std::uint32_t drawn = ctx_.rng.below(std::max(o.restart_keeps + o.restart_loses + rolls_back, 1U));
    auto kind = unseen || drawn < o.restart_loses      ? sim_node::restart::losing
                : drawn < o.restart_loses + rolls_back ? sim_node::restart::rolled_back
                                                       : sim_node::restart::keeping;
    if (!may_forget(n)) kind = sim_node::restart::keeping;
    const bool syncs = kind == sim_node::restart::keeping && node.syncs_every_write();
    if (syncs && o.older_file_per_thousand != 0 && ctx_.rng.chance(o.older_file_per_thousand))
        kind = sim_node::restart::older_file;
    crash_node(n, kind);
}

void world::crash_node(std::uint32_t n, sim_node::restart kind) {
    if (!nodes_[n]->runs()) return;
    check_.node_fault_injected();
    nodes_[n]->crash(kind);
    net_.node_crashed(n);
    ctx_.note("node crashes", n, static_cast<std::uint64_t>(kind));
    ctx_.events.schedule_in(ctx_.rng.draw_around(ctx_.config.outage),
                            {.kind = event_kind::node_starts, .actor = static_cast<std::uint8_t>(n)});
}

// --- healing

/// Returns the longest time after which every resource can be acquired again: the sum of the longest delays of all
/// steps.
sim_time world::healing_bound() const {
    const options& o = ctx_.config;
    // Messages that are still in flight.
    const sim_time messages = o.slow * 8 + o.block * 8 + 4 * sim_time(o.max_ttl);
    const sim_time noticed = 3 * sim_time(o.node_dead_after) + std::chrono::seconds{2};
    const sim_time admitted = 3 * sim_time(lockcore::node_supervisor::recheck_delay) + sim_time(o.max_ttl);
    const sim_time free_again = 3 * sim_time(o.max_ttl);
    // Until every gateway has seen the last change of the storage generation, and holders have newer tokens.
    const sim_time changed =
        o.database_fails() ? 40 * sim_time(o.watch_interval) + std::chrono::seconds{15} : sim_time{0};
    return messages + noticed + admitted + free_again + changed + std::chrono::seconds{3};
}

void world::heal() {
    healed_ = true;
    ctx_.note("faults end");
    net_.heal();
    epochs_.heal();
    for (database::server s = 0; s < db_.newest(); ++s)
        db_.stop(s);
    for (std::uint32_t caller = 0; caller < ctx_.config.gateways + ctx_.config.clients + ctx_.config.resources;
         ++caller)
        change_route(caller);
    for (std::uint32_t n = 0; n < ctx_.config.nodes; ++n) {
        nodes_[n]->resume();
        if (!nodes_[n]->runs())
            ctx_.events.schedule_in(milliseconds{1},
                                    {.kind = event_kind::node_starts, .actor = static_cast<std::uint8_t>(n)});
    }
    for (std::uint32_t g = 0; g < ctx_.config.gateways; ++g) {
        gateways_[g]->resume();
        resume(g);
        if (!gateways_[g]->runs())
            ctx_.events.schedule_in(milliseconds{1},
                                    {.kind = event_kind::gateway_starts, .actor = static_cast<std::uint8_t>(g)});
    }
    for (sim_client& client : clients_)
        client.stop(ctx_.config.readers_continue);
    for (std::uint32_t r = 0; r < ctx_.config.resources; ++r) {
        clients_.emplace_back(ctx_, check_, *this, ctx_.config.clients + r, draw_clock(ctx_));
        clients_.back().require_grant(r);
    }
    ctx_.events.schedule_in(healing_bound(), {.kind = event_kind::world_ends});
    // Checks in between end the run early when every resource was granted.
    for (int k = 1; k <= 20; ++k)
        ctx_.events.schedule_in(healing_bound() * k / 21, {.kind = event_kind::world_ends, .a = 1});
}

void world::check_healed(bool may_wait) {
    bool all_granted = true;
    for (std::uint32_t r = 0; r < ctx_.config.resources; ++r) {
        if (clients_[ctx_.config.clients + r].was_granted()) continue;
        all_granted = false;
        if (!may_wait) check_.not_granted_after_healing(r);
    }
    for (const auto& gateway : gateways_) {
        if (!ctx_.config.database_fails() || (gateway->runs() && gateway->storage()->is_settled())) continue;
        all_granted = false;
        if (!may_wait) check_.generation_not_settled(gateway->index());
    }
    ended_ = all_granted || !may_wait;
    for (const auto& gateway : gateways_) {
        if (ended_ && gateway->storage() && !gateway->storage()->knows_all_lost_writes())
            check_.lost_write_not_reported(gateway->index());
    }
    if (!ended_ || ctx_.config.clocks_jump) return;
    for (std::uint32_t n = 0; n < ctx_.config.nodes; ++n) {
        for (std::uint32_t r = 0; r < ctx_.config.resources; ++r) {
            if (nodes_[n]->outlives(r, ctx_.config.max_ttl)) check_.key_left(n, r, 0, "it lives longer than max_ttl");
        }
    }
}

outcome run_seed(std::uint64_t seed, const overrides& wanted, bool prints) {
    world simulation(draw_options(seed, wanted), prints, wanted.only_checker);
    return simulation.run();
}

}  // namespace sim
