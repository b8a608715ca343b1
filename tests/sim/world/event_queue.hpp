#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace sim {

/// Real time since the run began. The simulated parts do not read it: each has a clock of its own that
/// is derived from it.
using sim_time = std::chrono::microseconds;

enum class event_kind : std::uint8_t {
    request_arrives,          ///< a: connection
    reply_arrives,            ///< a: connection
    connection_opens,         ///< a: connection; its gateway learns of it
    connection_ends,          ///< a: connection; its gateway learns of it
    draw_arrives,             ///< a: call to the register, at the register
    draw_answered,            ///< a: call to the register, at its gateway
    gateway_called,           ///< actor: gateway, a: call
    call_dropped,             ///< actor: gateway, a: call; its client no longer waits
    gateway_tick,             ///< actor: gateway, a: incarnation
    gateway_timer,            ///< actor: gateway, a: incarnation, b: serial
    gateway_flush,            ///< actor: gateway, a: incarnation
    release_message_arrives,  ///< actor: gateway, a: message
    client_timer,             ///< actor: client, a: generation
    shop_asked,               ///< a: visit
    shop_answered,            ///< a: visit
    fault_due,                ///< a: fault class
    node_starts,              ///< actor: node
    node_flushed,             ///< actor: node, a second time
    gateway_starts,           ///< actor: gateway
    gateway_resumes,          ///< actor: gateway
    storage_asked,            ///< actor: gateway, a: incarnation, b: serial; at PostgreSQL
    storage_answered,         ///< actor: gateway, a: incarnation, b: serial
    route_changes,            ///< a: gateway, or after them client; its new connections reach the newest PostgreSQL
    server_stops,             ///< a: PostgreSQL server
    cancellation_is_over,     ///< a: cancelled request; it can be granted no more
    world_heals,
    world_ends,  ///< a: 1 for a check during healing, 0 for the last one
};

struct event {
    sim_time at{};
    std::uint64_t order = 0;  ///< Orders events of the same time: the one scheduled first happens first.
    event_kind kind{};
    std::uint8_t actor = 0;
    std::uint32_t a = 0, b = 0, c = 0;
};

/// The clock of the simulated world and the events that are scheduled.
class event_queue {
  public:
    sim_time now() const { return now_; }

    void schedule_at(sim_time when, event e) {
        e.at = std::max(when, now_);
        e.order = ++scheduled_;
        heap_.push_back(e);
        std::push_heap(heap_.begin(), heap_.end(), later);
    }
    void schedule_in(sim_time span, event e) { schedule_at(now_ + span, e); }

    bool empty() const { return heap_.empty(); }
    /// Removes and returns the next event and sets the clock to its time.
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
