#pragma once

#include <lockcore/lease.hpp>
#include <proto/lease_record.hpp>
#include <proto/wait_queue.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <unordered_map>

namespace lockcore {

/// Gives each waiter a ticket, and keeps the tickets of callers whose wait ended without a lease. Such a caller may
/// repeat its call; with a new ticket it would go to the end of the queue, and later callers could always overtake it.
///
/// Limits:  keeps tickets of callers with an idempotency key only, `kept_max` of them, for `keep_for`.
/// Threads: not safe.
class ticket_counter {
  public:
    static constexpr std::chrono::seconds keep_for{5};

    explicit ticket_counter(std::size_t kept_max) : kept_max_(kept_max) {}

    /// Returns a new ticket, or the one that was kept for this caller.
    wait_queue::ticket draw(const acquire_request& request, monotonic_time now) {
        if (!request.idempotency_key.empty()) {
            const auto found = kept_.extract(name_request(request));
            if (found && now < found.mapped().expires_at) return found.mapped().ticket;
        }
        return ++last_;
    }

    /// Keeps the ticket of a caller whose wait has ended.
    void keep(const acquire_request& request, wait_queue::ticket ticket, monotonic_time now) {
        if (request.idempotency_key.empty()) return;
        if (now >= sweep_at_) {
            std::erase_if(kept_, [now](const auto& entry) { return entry.second.expires_at <= now; });
            sweep_at_ = now + keep_for;
        }
        if (kept_.size() < kept_max_) kept_[name_request(request)] = {ticket, now + keep_for};
    }

  private:
    struct kept_ticket {
        wait_queue::ticket ticket = 0;
        monotonic_time expires_at{};
    };

    wait_queue::ticket last_ = 0;
    std::size_t kept_max_;
    std::unordered_map<std::string, kept_ticket> kept_;
    monotonic_time sweep_at_{};
};

}  // namespace lockcore
