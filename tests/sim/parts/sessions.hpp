#pragma once

#include <sim/parts/database.hpp>

#include <array>
#include <optional>

namespace sim {

/// The connections of one gateway to PostgreSQL: gateway/pg/connection/session_slot in small.
/// A call uses any of them, so that two calls may reach different servers.
class gateway_sessions {
  public:
    static constexpr std::uint32_t slots = 2;

    gateway_sessions(context& ctx, database& db) : ctx_(ctx), db_(db) {}

    /// New connections reach this server from now on.
    void route_to(database::server s) { route_ = s; }
    void gateway_crashed() {
        slots_ = {};
        newest_floor_ = renewals_ = 0;
    }
    void renew_all() { ++renewals_; }
    bool require_floor(lockcore::epoch floor) {
        if (newest_floor_ >= value_of(floor)) return false;
        newest_floor_ = value_of(floor);
        renew_all();
        return true;
    }
    /// Chooses a connection and returns the server that the call reaches over it; empty if it fails.
    std::optional<database::server> reach() {
        const bool fails = ctx_.config.database_fails();
        slot& used = slots_[fails ? ctx_.rng.below(slots) : 0];
        // A connection may break at any time, and one to a server that was replaced soon does.
        const bool breaks = fails && used.server && ctx_.rng.chance(*used.server == db_.newest() ? 10 : 150);
        if (used.server && (breaks || !db_.answers(*used.server))) {
            used.server.reset();
            return {};
        }
        if (used.server && used.made_at != renewals_) used.server.reset();
        if (!used.server) connect(used);
        if (used.server && *used.server != db_.newest()) ctx_.hit(probe::replaced_server_reached);
        return used.server;
    }

  private:
    struct slot {
        std::optional<database::server> server;
        std::uint64_t made_at = 0;
    };
    /// With the comparison of session_slot::check_server.
    void connect(slot& used) {
        if (!db_.answers(route_)) return;
        used.made_at = renewals_;
        if (!ctx_.is_active(mutation::connection_not_compared)) {
            const database::generation found = db_.state_of(route_);
            if (!found.current) db_.begin_generation_change(route_, {});
            if (found.current && value_of(found.floor) < newest_floor_) return ctx_.hit(probe::replaced_server_refused);
            if (found.current && require_floor(found.floor)) ++used.made_at;
        }
        used.server = route_;
    }

    context& ctx_;
    database& db_;
    database::server route_ = 0;
    std::array<slot, slots> slots_;
    std::uint64_t newest_floor_ = 0, renewals_ = 0;
};

}  // namespace sim
