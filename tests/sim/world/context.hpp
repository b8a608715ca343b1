#pragma once

#include <sim/world/event_queue.hpp>
#include <sim/world/options.hpp>
#include <sim/world/probes.hpp>
#include <sim/world/random.hpp>
#include <sim/world/trace.hpp>

namespace sim {

/// What every part of the world is given: the one clock, the one source of chance, the one record.
struct context {
    context(options o, bool prints) : set(std::move(o)), chance(set.seed), record(prints) {}

    options set;
    random chance;
    event_queue events;
    trace record;
    probe_counts probes;

    sim_time now() const { return events.now(); }
    bool broken(mutation m) const { return set.broken == m; }
    void hit(probe p) { probes.hit(p); }
    void note(label what, std::uint64_t a = 0, std::uint64_t b = 0, std::uint64_t c = 0, std::uint64_t d = 0) {
        record.note(now(), what, a, b, c, d);
    }
};

/// A clock that runs at a rate of its own.
class drifting_clock {
  public:
    explicit drifting_clock(std::int64_t ppm = 0) : ppm_(ppm) {}
    microseconds of(sim_time real) const { return real + microseconds{real.count() * ppm_ / 1'000'000}; }
    /// How long `span` of this clock lasts in real time, rounded up.
    microseconds real(microseconds span) const {
        return microseconds{(span.count() * 1'000'000 + 999'999 + ppm_) / (1'000'000 + ppm_)};
    }

  private:
    std::int64_t ppm_;
};

/// Resources as a set; a lease may cover several.
using resource_set = std::uint8_t;

template <class Function>
void for_each_resource(resource_set set, Function&& f) {
    for (std::uint32_t r = 0; r < sim_resources_max; ++r) {
        if (set >> r & 1) f(r);
    }
}

/// A nonce; 0 is none. No two attempts of a run have the same one.
using sim_nonce = std::uint64_t;

}  // namespace sim
