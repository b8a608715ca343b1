#pragma once

#include <sim/world/event_queue.hpp>
#include <sim/world/options.hpp>
#include <sim/world/probes.hpp>
#include <sim/world/random.hpp>
#include <sim/world/trace.hpp>

namespace sim {

/// Gives every part of the simulated world the configuration, the random number generator, the event queue, the trace
/// and the probe counts of the run.
struct context {
    context(options o, bool prints) : config(std::move(o)), rng(config.seed), record(prints) {}

    options config;
    random rng;
    event_queue events;
    trace record;
    probe_counts probes;

    sim_time now() const { return events.now(); }
    bool is_active(mutation m) const { return config.active_mutation == m; }
    void hit(probe p) { probes.hit(p); }
    void note(label name, std::uint64_t a = 0, std::uint64_t b = 0, std::uint64_t c = 0, std::uint64_t d = 0) {
        record.note(now(), name, a, b, c, d);
    }
};

/// A clock that runs faster or slower than real time by a constant rate.
class drifting_clock {
  public:
    explicit drifting_clock(std::int64_t ppm = 0) : ppm_(ppm) {}
    microseconds of(sim_time real) const { return real + microseconds{real.count() * ppm_ / 1'000'000}; }
    /// Returns how long `span` of this clock lasts in real time, rounded up.
    microseconds real(microseconds span) const {
        return microseconds{(span.count() * 1'000'000 + 999'999 + ppm_) / (1'000'000 + ppm_)};
    }

  private:
    std::int64_t ppm_;
};

/// The resources of a lease: a bit for each, and a bit `shared_bits` higher for each that it shares.
using resource_set = std::uint16_t;
inline constexpr std::uint32_t shared_bits = 8;

template <class Function>
void for_each_resource(resource_set set, Function&& f) {
    for (std::uint32_t r = 0; r < sim_resources_max; ++r) {
        if ((set | set >> shared_bits) >> r & 1) f(r);
    }
}
constexpr bool is_shared(resource_set set, std::uint32_t resource) {
    return set >> (shared_bits + resource) & 1;
}

/// The nonce of an attempt; 0 means none. No two attempts of a run have the same one.
using sim_nonce = std::uint64_t;

}  // namespace sim
