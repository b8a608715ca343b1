#pragma once

#include <sim/check/checkers.hpp>
#include <sim/parts/messages.hpp>

#include <vector>

namespace sim {

/// Simulates a database with one guarded row per resource, which holds the units in stock. A client reads the row with
/// its token, pauses, and writes one unit less with its token. The guard accepts a token that is not below the fence
/// and raises the fence to it. A read raises the fence too, so no lower token can change the row before the write.
class shop {
  public:
    struct visit {
        std::uint32_t client = 0, generation = 0;
        std::uint32_t resource = 0;
        std::uint64_t token = 0;
        bool writes = false;
        std::uint64_t units = 0;  ///< In: the value to write. Out: the value read.
        bool accepted = false;
    };
    static constexpr std::uint64_t units_at_start = 1'000'000;

    shop(context& ctx, checkers& check) : ctx_(ctx), check_(check) { units_.fill(units_at_start); }

    void ask(const visit& v) {
        visits_.push_back(v);
        ctx_.events.schedule_in(trip(),
                                {.kind = event_kind::shop_asked, .a = static_cast<std::uint32_t>(visits_.size() - 1)});
    }
    void asked(std::uint32_t index) {
        visit& v = visits_[index];
        std::uint64_t& fence = fence_[v.resource];
        v.accepted = v.token >= fence || ctx_.is_active(mutation::guard_accepts_any);
        if (v.accepted) {
            if (v.writes || !ctx_.is_active(mutation::guard_read_keeps_fence)) fence = std::max(fence, v.token);
            if (v.writes) {
                units_[v.resource] = v.units;
                ++sold_[v.resource];
            }
            v.units = units_[v.resource];
            if (v.writes || !ctx_.is_active(mutation::guard_read_keeps_fence))
                check_.guard_accepted(v.resource, v.token);
            check_.stock_counted(v.resource, sold_[v.resource], units_at_start - units_[v.resource]);
        } else {
            ctx_.hit(v.writes ? probe::stale_write_refused : probe::stale_read_refused);
        }
        ctx_.note(v.writes ? label("shop is written") : label("shop is read"), v.client, v.token, v.accepted, v.units);
        ctx_.events.schedule_in(trip(), {.kind = event_kind::shop_answered, .a = index});
    }
    const visit& answered(std::uint32_t index) const { return visits_[index]; }
    std::uint64_t sold(std::uint32_t resource) const { return sold_[resource]; }

  private:
    microseconds trip() {
        const bool slow = ctx_.config.slow_per_thousand > 0 && ctx_.rng.chance(ctx_.config.slow_per_thousand);
        return ctx_.config.delay_base + ctx_.rng.draw_around(slow ? ctx_.config.slow : ctx_.config.delay_more);
    }

    context& ctx_;
    checkers& check_;
    std::array<std::uint64_t, sim_resources_max> units_{}, sold_{}, fence_{};
    std::vector<visit> visits_;
};

}  // namespace sim
