#pragma once

#include <lockcore/lease.hpp>
#include <proto/wait_queue.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <unordered_map>

namespace lockcore {

/// Gives each caller that waits its ticket, and keeps those of callers that waited in vain and may ask again: one that
/// has to wait longer than one call may would otherwise go to the end of the queue each time, where those who come
/// later could overtake it for ever.
///
/// Limits: keeps those of callers with an idempotency key, `places_max` of them, for `keep_for`. Threads: not safe.
class ticket_counter {
  public:
    static constexpr std::chrono::seconds keep_for{5};

    explicit ticket_counter(std::size_t places_max) : places_max_(places_max) {}

    /// A ticket of its own, or the one that was kept for this caller.
    wait_queue::ticket draw(const acquire_request& request, monotonic_time now) {
        if (!request.idempotency_key.empty()) {
            const auto found = places_.extract(name_of(request));
            if (found && now < found.mapped().forget_at) return found.mapped().ticket;
        }
        return ++last_;
    }

    void keep(const acquire_request& request, wait_queue::ticket ticket, monotonic_time now) {
        if (request.idempotency_key.empty()) return;
        if (now >= sweep_at_) {
            std::erase_if(places_, [now](const auto& entry) { return entry.second.forget_at <= now; });
            sweep_at_ = now + keep_for;
        }
        if (places_.size() < places_max_) places_[name_of(request)] = {ticket, now + keep_for};
    }

  private:
    struct place {
        wait_queue::ticket ticket = 0;
        monotonic_time forget_at{};
    };

    static std::string name_of(const acquire_request& request) {
        return request.resources.front().str() + '\n' + request.by.principal + '\n' + request.by.owner + '\n' +
               request.idempotency_key;
    }

    wait_queue::ticket last_ = 0;
    std::size_t places_max_;
    std::unordered_map<std::string, place> places_;
    monotonic_time sweep_at_{};
};

}  // namespace lockcore
