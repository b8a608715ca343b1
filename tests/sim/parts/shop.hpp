#pragma once

#include <sim/check/checkers.hpp>
#include <sim/parts/messages.hpp>

#include <vector>

namespace sim {

/// A database with a guarded row a resource: how many units are left. A client reads it under its token, thinks, and
/// writes one less under its token. The guard accepts a token that is not below the fence and raises the fence to it,
/// by a read too: then what was read can't change under a lower token until it is written.
class shop {
  public:
    struct visit {
        std::uint32_t client = 0, generation = 0;
        std::uint32_t resource = 0;
        std::uint64_t token = 0;
        bool writes = false;
        std::uint64_t units = 0;  ///< In: what to write. Out: what was read.
        bool accepted = false;
    };
    static constexpr std::uint64_t units_at_start = 1'000'000;

    shop(context& ctx, checkers& check) : ctx_(ctx), check_(check) { units_.fill(units_at_start); }

    void ask(const visit& v) {
        visits_.push_back(v);
        ctx_.events.in(trip(), {.kind = event_kind::shop_asked, .a = static_cast<std::uint32_t>(visits_.size() - 1)});
    }
    void asked(std::uint32_t at) {
        visit& v = visits_[at];
        std::uint64_t& fence = fence_[v.resource];
        v.accepted = v.token >= fence || ctx_.broken(mutation::guard_open);
        if (v.accepted) {
            if (v.writes || !ctx_.broken(mutation::guard_forgets)) fence = std::max(fence, v.token);
            if (v.writes) {
                units_[v.resource] = v.units;
                ++sold_[v.resource];
            }
            v.units = units_[v.resource];
            if (v.writes || !ctx_.broken(mutation::guard_forgets)) check_.guard_accepted(v.resource, v.token);
            check_.stock_counted(v.resource, sold_[v.resource], units_at_start - units_[v.resource]);
        } else {
            ctx_.hit(v.writes ? probe::stale_write_refused : probe::stale_read_refused);
        }
        ctx_.note(v.writes ? label("shop is written") : label("shop is read"), v.client, v.token, v.accepted, v.units);
        ctx_.events.in(trip(), {.kind = event_kind::shop_answered, .a = at});
    }
    const visit& answered(std::uint32_t at) const { return visits_[at]; }
    std::uint64_t sold(std::uint32_t resource) const { return sold_[resource]; }

  private:
    microseconds trip() {
        const bool slow = ctx_.set.slow_per_thousand > 0 && ctx_.chance.chance(ctx_.set.slow_per_thousand);
        return ctx_.set.delay_base + ctx_.chance.about(slow ? ctx_.set.slow : ctx_.set.delay_more);
    }

    context& ctx_;
    checkers& check_;
    std::array<std::uint64_t, sim_resources_max> units_{}, sold_{}, fence_{};
    std::vector<visit> visits_;
};

}  // namespace sim
