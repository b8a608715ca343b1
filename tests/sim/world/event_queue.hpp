#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace sim {

/// Real time since the run began. No part of the system can read it: each has its own clock, derived from it.
using sim_time = std::chrono::microseconds;

enum class event_kind : std::uint8_t {
    request_arrives,   ///< a: connection
    reply_arrives,     ///< a: connection
    connection_opens,  ///< a: connection; told to its gateway
    connection_ends,   ///< a: connection; told to its gateway
    link_acts,         ///< who: gateway, a: node, b: generation, c: action
    link_looks,        ///< who: gateway, a: node
    draw_arrives,      ///< a: draw, at the register
    draw_answered,     ///< a: draw, at its gateway
    gateway_called,    ///< who: gateway, a: call
    call_dropped,      ///< who: gateway, a: call; its client has gone away
    waiter_wakes,      ///< who: gateway, a: its place in the queue, b: serial
    wake_arrives,      ///< who: gateway, a: wake
    client_wakes,      ///< who: client, a: generation
    shop_asked,        ///< a: visit
    shop_answered,     ///< a: visit
    fault_strikes,     ///< a: fault class
    node_starts,       ///< who: node
    node_flushed,      ///< who: node, once more
    gateway_starts,    ///< who: gateway
    gateway_resumes,   ///< who: gateway
    world_heals,
    world_ends,
};

struct event {
    sim_time at{};
    std::uint64_t order = 0;  ///< Of two at one moment the one scheduled first comes first.
    event_kind kind{};
    std::uint8_t who = 0;
    std::uint32_t a = 0, b = 0, c = 0;
};

/// The clock of the world and everything that is still to happen.
class event_queue {
  public:
    sim_time now() const { return now_; }

    void at(sim_time when, event e) {
        e.at = std::max(when, now_);
        e.order = ++scheduled_;
        heap_.push_back(e);
        std::push_heap(heap_.begin(), heap_.end(), later);
    }
    void in(sim_time span, event e) { at(now_ + span, e); }

    bool empty() const { return heap_.empty(); }
    /// The next event; the clock goes on to it.
    event next() {
        std::pop_heap(heap_.begin(), heap_.end(), later);
        const event e = heap_.back();
        heap_.pop_back();
        now_ = e.at;
        return e;
    }
    std::uint64_t scheduled() const { return scheduled_; }

  private:
    static bool later(const event& x, const event& y) { return x.at != y.at ? x.at > y.at : x.order > y.order; }

    std::vector<event> heap_;
    sim_time now_{};
    std::uint64_t scheduled_ = 0;
};

}  // namespace sim
