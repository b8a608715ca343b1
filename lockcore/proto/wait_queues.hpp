#pragma once

#include <lockcore/invariant.hpp>
#include <lockcore/lease.hpp>
#include <lockcore/types.hpp>
#include <proto/core_context.hpp>
#include <proto/lease_record.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockcore {

/// The waiters for one resource at one manager, in order of arrival. Only the head contends at the nodes; if it shares
/// the resource, so do those behind it that share it, up to the first that does not. The queue decides when they try
/// again, and whether a lease released here is handed over to the head.
///
/// The queue has no clock and no randomness. Its owner reports what happens, and lets the head wait for the delay that
/// each delay_after_… returns.
///
/// Threads: not safe.
/// Source:  docs/protocol.md, "Waiting".
class wait_queue {
  public:
    using ticket = std::uint64_t;
    struct limits {
        std::size_t quorum = 1;
        std::uint32_t handoff_max = 0;
    };

    /// `handed_over`: the number of handoffs in a row before this queue was created.
    explicit wait_queue(limits l, std::uint32_t handed_over = 0) : limits_(l), handed_over_(handed_over) {}

    /// Adds a waiter. Each ticket is above those before, except that of a caller that returns to its kept place.
    /// `shared`: a request that needs no resource for itself.
    void join(ticket t, bool shared = false) {
        waiting_.insert(waiting_.end(), t);
        if (!shared) exclusive_.insert(exclusive_.end(), t);
    }
    /// Returns whether a waiter is the head or contends with it.
    bool contends(ticket t) const { return t == head() || exclusive_.empty() || t < *exclusive_.begin(); }
    /// Returns the waiters that contend.
    std::vector<ticket> contenders() const;
    /// Removes a waiter. Returns true if it was the head and others wait: the new head tries at once.
    bool leave(ticket t);
    bool empty() const { return waiting_.empty(); }
    std::size_t size() const { return waiting_.size(); }
    ticket head() const {
        LOCKCORE_INVARIANT(!waiting_.empty());
        return *waiting_.begin();
    }
    /// Returns the place of a waiter; the head has 1.
    std::size_t position(ticket t) const;

    /// The head found the resource held.
    ///
    /// In:  `remaining`: the time until the holder's lease expires; zero: unknown. `random`: any random number.
    /// Out: how long the head waits before its next try.
    milliseconds delay_after_refusal(milliseconds remaining, std::uint64_t random);

    /// A node has reported the end of a lease.
    ///
    /// Out: how long the head still waits: zero after a majority has reported it; before that majority_grace, for the
    ///      other messages may be lost.
    milliseconds delay_after_end_of_lease(node_index node, const nonce& ended);

    /// Returns whether a lease that is released here is handed over to the head (docs/protocol.md HAND-OVER), and
    /// counts the handoff.
    bool begin_handoff();
    /// Returns the number of handoffs in a row.
    std::uint32_t handed_over() const { return handed_over_; }
    /// A lease was released here without a handoff.
    ///
    /// Out: how long the head waits so that waiters of other managers can acquire the lease first.
    milliseconds delay_after_release(bool others_wait);

    /// The longest time between two tries: the most that a lost message delays a waiter.
    static constexpr milliseconds retry_delay_max{250};
    /// The longest delay after the first refusal; it doubles with each further refusal, up to retry_delay_max.
    static constexpr milliseconds retry_delay_min{4};
    /// The delay after the first node has reported the end of a lease.
    static constexpr milliseconds majority_grace{5};
    /// The delay in favour of waiters of other managers.
    static constexpr milliseconds yield_time{15};

  private:
    limits limits_;
    std::set<ticket> waiting_, exclusive_;
    unsigned refusals_ = 0;  ///< In a row, since the last report of a lease's end.
    std::uint32_t handed_over_;
    nonce ended_lease_;
    node_set reporting_nodes_;
};

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

/// The callers of one core that wait, in a queue for each resource, and when each of them tries again. A caller that
/// wants several resources is in the queue of the first of them.
///
/// Threads: not safe.
/// Limits:  config::waiters_max callers.
/// Source:  docs/protocol.md, "Waiting".
class wait_queues {
  public:
    /// A caller in a queue. It sleeps, or an attempt of it is in progress.
    struct waiter {
        call_id call{};
        const acquire_request& request;
        wait_queue::ticket ticket = 0;
        std::shared_ptr<void> admission{};  ///< From acquire_request::admit_waiter.
        monotonic_time give_up_at{};        ///< The end of its wait.
        monotonic_time sleeps_until{};      ///< Its next try, if it contends and is not woken before.
        bool woken = false;
        bool trying = false;        ///< An attempt of it is in progress.
        bool gets_handoff = false;  ///< A release hands its lease over to it.
        timer_list::handle timer{};
        failure last_refusal{};
    };
    enum class choice {
        sleep,  ///< `continue_wait` is called when it is to be decided again.
        try_now,
        give_up,  ///< Its wait is over.
    };

    /// `continue_wait`: is called for the call of a waiter at the end of its sleep, or when it is woken; decide() says
    /// how it goes on.
    wait_queues(core_context& ctx, std::function<void(call_id)> continue_wait);

    /// Adds a caller whose attempt was refused. To be followed by decide().
    ///
    /// In:     `request`: lives until leave().
    /// Errors: errc::too_many_waiters.
    result<waiter*> join(call_id call, const acquire_request& request);
    /// When the head leaves without a lease, the next waiter tries at once. When it leaves with a lease (`granted`),
    /// the lease is usually released here, and until then the next waiter tries only at intervals.
    void leave(waiter& w, bool granted);
    /// Decides what a waiter does that is not trying.
    choice decide(waiter& w);
    /// An attempt of the waiter begins.
    void begin_try(waiter& w);
    /// The attempt of the waiter was refused. To be followed by decide().
    void end_try(waiter& w, failure refusal);
    /// Returns the refusal for a waiter whose wait is over. If it repeats its call soon, it gets its place again.
    failure give_up(waiter& w);
    void wake_all();

    /// Returns whether a new caller must not try at once: others wait for the resource, here or at other managers.
    bool must_wait(const acquire_request& request) const;
    /// Returns whether several callers wait for the resource.
    bool has_several(const resource_name& resource) const;
    /// Returns the refusal for a caller that finds others waiting.
    failure make_locked_failure(const resource_name& resource) const;

    /// A lease was extended here.
    void lease_extended(const lease_claims& claims, milliseconds ttl);
    /// A lease was released here without a handoff. `others_wait`: at other managers.
    void lease_released(const lease_claims& claims, bool others_wait);
    /// A node published that a lease ended.
    void lease_ended(const input::lease_ended& what);
    /// Chooses the waiter to which a lease is handed over that is released here (docs/protocol.md HAND-OVER), and wakes
    /// it. Null if no waiter can take it, or it is the turn of others.
    waiter* begin_handoff(const lease_claims& claims);
    void forget_expired();

    std::size_t count() const { return waiting_.size(); }
    /// Counts the waiting callers of each resource whose name begins with `prefix`.
    waiting_overview list(std::string_view prefix) const;

  private:
    struct queue {
        wait_queue order;
        monotonic_time held_until{};  ///< The end of the present lease, by the last answer to the head.
    };
    /// What keeps this manager and others alternating for one resource, also while it has no waiter here.
    struct handoff_state {
        std::uint32_t handed_over = 0;        ///< The handoffs in a row; the last waiter holds the lease.
        monotonic_time yield_until{};         ///< Until then waiters of other managers may acquire first.
        monotonic_time handoff_expires_at{};  ///< When the lease of the last handoff expires.
    };

    static const std::string& queue_key(const acquire_request& r) { return first_resource(r).str(); }
    waiter& head_of(const queue& q) { return waiting_.at(q.order.head()); }
    handoff_state find_handoffs(const std::string& resource) const;
    void sleep(waiter& w);
    /// Calls `continue_wait` at the end of this step.
    void wake(waiter& w);
    /// Returns whether the head of another queue also waits for one of these resources, with a ticket below `ticket`.
    bool has_earlier_waiter(const lease_claims& claims, wait_queue::ticket ticket) const;
    /// Lets the head of a queue, and those that contend with it, try after `delay`, or earlier if they already intended
    /// to.
    void schedule_head_retry(const std::string& resource, milliseconds delay);
    /// Lets the head of a queue try at `time`, and not earlier.
    void reschedule_head_retry(queue& q, monotonic_time time);

    core_context& ctx_;
    std::function<void(call_id)> continue_wait_;
    std::unordered_map<std::string, queue> queues_;  ///< By resource; only resources with waiters have an entry.
    std::unordered_map<wait_queue::ticket, waiter> waiting_;
    ticket_counter tickets_;
    /// Waiters for several resources, which queue for the first one: from each of the other resources to the first.
    std::unordered_multimap<std::string, std::string> secondary_waits_;
    std::unordered_map<std::string, handoff_state> handoffs_;  ///< By resource.
};

}  // namespace lockcore
