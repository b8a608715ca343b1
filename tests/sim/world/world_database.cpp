#include <sim/world/world.hpp>

#include <algorithm>

// PostgreSQL in a simulated world: who reaches it, and what replaces it.

namespace sim {

void world::visit_shop(shop::visit v) {
    if (v.gateway) v.incarnation = gateways_[*v.gateway]->incarnation();
    shop_.ask(v);
}

void world::ask_shop(const event& e) {
    const shop::visit& v = shop_.visit_at(e.a);
    if (!v.gateway) return shop_.asked(e.a);
    sim_gateway& gateway = *gateways_[*v.gateway];
    if (gateway.runs() && defer_event(e, *v.gateway)) return;
    shop_.asked(e.a, !gateway.runs() || !gateway.storage()->lets_in());
}

void world::answer_shop(const event& e) {
    const shop::visit& sent = shop_.visit_at(e.a);
    bool gateway_lost = false;
    if (sent.gateway) {
        sim_gateway& gateway = *gateways_[*sent.gateway];
        gateway_lost = !gateway.runs() || gateway.incarnation() != sent.incarnation;
        if (!gateway_lost && defer_event(e, *sent.gateway)) return;
    }
    const shop::visit& v = shop_.answered(e.a, gateway_lost);
    if (v.gateway && v.accepted && v.statement.writes && !shop_.is_overdue(v))
        gateways_[*v.gateway]->storage()->acknowledged(v.statement.write_id);
    clients_[v.client].shop_answered(v);
}

bool world::may_forget(std::uint32_t node) const {
    if (!ctx_.config.database_fails() || nodes_[node]->has_forgotten()) return true;
    const auto forgotten = std::ranges::count_if(nodes_, [](const auto& each) { return each->has_forgotten(); });
    return static_cast<std::size_t>(forgotten) + lockcore::majority_of(nodes_.size()) < nodes_.size();
}

void world::replace_database() {
    // Most of them are promotions.
    const auto kind = ctx_.rng.chance(700) ? database::replacement::promotion
                                           : static_cast<database::replacement>(1 + ctx_.rng.below(2));
    const database::server before = db_.newest();
    if (!db_.replace(kind)) return;
    // A dump is loaded, or a snapshot put back, when the server before has stopped; a standby may be promoted before.
    const bool answers = kind == database::replacement::promotion && ctx_.rng.chance(600);
    if (!answers) {
        for (database::server s = 0; s <= before; ++s)
            db_.stop(s);
    } else if (ctx_.rng.chance(700)) {
        ctx_.events.schedule_in(ctx_.rng.draw_around(ctx_.config.max_ttl),
                                {.kind = event_kind::server_stops, .a = before});
    }
    if (ctx_.rng.chance(150)) {  // with a restart of everything: no node is admitted before the change is finished
        for (std::uint32_t n = 0; n < ctx_.config.nodes; ++n)
            crash_node(n, sim_node::restart::keeping);
    }
    for (std::uint32_t caller = 0; caller < ctx_.config.gateways + ctx_.config.clients; ++caller) {
        const bool at_once = ctx_.rng.chance(500);
        ctx_.events.schedule_in(at_once ? microseconds{0} : ctx_.rng.draw_around(ctx_.config.max_ttl),
                                {.kind = event_kind::route_changes, .a = caller});
    }
}

void world::change_route(std::uint32_t caller) {
    database::server server = db_.newest();
    if (!healed_ && ctx_.rng.chance(200)) {  // a name or a proxy that still leads to an older one, for a while
        server = ctx_.rng.below(server + 1);
        ctx_.events.schedule_in(ctx_.rng.draw_around(ctx_.config.max_ttl),
                                {.kind = event_kind::route_changes, .a = caller});
    } else if (!healed_ && ctx_.rng.chance(400)) {
        ctx_.events.schedule_in(ctx_.rng.draw_around(ctx_.config.max_ttl * 2),
                                {.kind = event_kind::route_changes, .a = caller});
    }
    if (caller < ctx_.config.gateways) {
        sessions_[caller].route_to(server);
    } else {
        shop_.route_to(caller - ctx_.config.gateways, server);
    }
}

}  // namespace sim
