#pragma once

#include <sim/parts/epoch_register.hpp>

#include <vector>

namespace sim {

/// Carries the statements of clients to the shop: a database with one guarded row per resource,
/// which holds the units in stock. A client reads the row with its token, pauses,
/// and writes one unit less with its token. The guard accepts a token that is not below the fence and raises the fence
/// to it. A read raises the fence too, so no lower token can change the row before the write.
class shop {
  public:
    struct visit {
        std::uint32_t client = 0, generation = 0;
        shop_statement statement;
        /// Empty: the client has a connection of its own to PostgreSQL.
        std::optional<std::uint32_t> gateway;
        std::uint32_t incarnation = 0;
        std::optional<database::server> server;  ///< Of a write: where the client read. Out: where it ran.
        bool read_was_stale = false;             ///< The row was read on a server that had been replaced.
        bool accepted = false;
        bool unknown = false;  ///< There was no answer: a write may have taken effect.
        sim_time asked_at{};
    };

    shop(context& ctx, database& db, epoch_register& epochs) : ctx_(ctx), db_(db), epochs_(epochs) {
        clients_.resize(ctx.config.clients + ctx.config.resources);
    }

    void ask(const visit& v) {
        visits_.push_back(v);
        visits_.back().asked_at = ctx_.now();
        if (v.gateway) visits_.back().statement.write_id = visits_.size();
        ctx_.events.schedule_in(trip(),
                                {.kind = event_kind::shop_asked, .a = static_cast<std::uint32_t>(visits_.size() - 1)});
    }
    /// `refused`: the gateway refuses the statement.
    void asked(std::uint32_t index, bool refused = false) {
        visit& v = visits_[index];
        const auto read_at = v.server;
        v.server = refused ? std::nullopt : v.gateway ? epochs_.reach(*v.gateway) : reach(v.client);
        // What was read on a server that had been replaced is old, and a replaced server,
        // whose state may be promoted again, lacks what was read on a newer one.
        // A client that changes the row in the transaction of the read, or on its connection, writes where it has read;
        // the same connection never reaches another server.
        const bool is_replaced = v.server && *v.server != db_.newest();
        if (v.statement.writes && v.server != read_at && (v.read_was_stale || is_replaced)) v.server.reset();
        v.unknown = !v.server && !refused;
        v.accepted = v.server && db_.execute(*v.server, v.statement);
        if (!v.statement.writes) v.read_was_stale = v.server && *v.server != db_.newest();
        const shop_statement& s = v.statement;
        ctx_.note(s.writes ? label("shop is written") : label("shop is read"), v.client, s.token, v.accepted, s.units);
        // A server that is replaced because it was paused, or out of reach, may still answer later.
        const bool late = ctx_.config.database_fails() && ctx_.config.slow_per_thousand > 0 && ctx_.rng.chance(150);
        const microseconds more = late ? ctx_.rng.draw_around(ctx_.config.slow) : microseconds{0};
        ctx_.events.schedule_in(trip() + more, {.kind = event_kind::shop_answered, .a = index});
    }
    /// `gateway_lost`: the gateway that was to pass on the answer has crashed.
    const visit& answered(std::uint32_t index, bool gateway_lost) {
        visit& v = visits_[index];
        if (gateway_lost || (v.server && !db_.answers(*v.server))) {
            v.unknown = true;
            v.accepted = false;
        }
        return v;
    }
    /// Returns whether the answer comes later than a request lasts.
    /// A gateway looks for lost writes twice, an interval apart;
    /// within that time every request has ended that was under way at a change.
    bool is_overdue(const visit& v) const { return ctx_.now() - v.asked_at > ctx_.config.watch_interval * 9 / 10; }
    const visit& visit_at(std::uint32_t index) const { return visits_[index]; }

    /// New connections of the client reach this server from now on.
    void route_to(std::uint32_t client, database::server s) { clients_[client].route = s; }

  private:
    struct connection {
        std::optional<database::server> server;
        database::server route = 0;
    };
    std::optional<database::server> reach(std::uint32_t client) {
        connection& c = clients_[client];
        if (c.server && !db_.answers(*c.server)) {
            c.server.reset();  // the connection broke
            return {};
        }
        if (!c.server && db_.answers(c.route) && db_.may_write_directly(c.route)) c.server = c.route;
        return c.server;
    }
    microseconds trip() {
        const bool slow = ctx_.config.slow_per_thousand > 0 && ctx_.rng.chance(ctx_.config.slow_per_thousand);
        return ctx_.config.delay_base + ctx_.rng.draw_around(slow ? ctx_.config.slow : ctx_.config.delay_more);
    }

    context& ctx_;
    database& db_;
    epoch_register& epochs_;
    std::vector<connection> clients_;
    std::vector<visit> visits_;
};

}  // namespace sim
