#pragma once

#include <lockcore/lease.hpp>
#include <proto/attempts.hpp>
#include <proto/core_context.hpp>
#include <proto/kept_leases.hpp>
#include <proto/lease_rounds.hpp>
#include <proto/wait_queues.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

namespace lockcore {

/// The requests that were cancelled by their idempotency key, each until it can no longer be on its way or wait
/// elsewhere.
///
/// Threads: not safe.
/// Limits:  as remember() says.
class cancelled_requests {
  public:
    struct entry {
        acquire_request request;
        monotonic_time until{};
        milliseconds pause{};  ///< Before the next search for its lease.
        timer_list::handle timer{};
    };

    /// Returns null if the request with this name (name_request) was not cancelled.
    entry* find(const std::string& name) {
        const auto found = by_name_.find(name);
        return found == by_name_.end() ? nullptr : &found->second;
    }

    /// Returns the entry of a request, a new one if there is none. Null if there are `most` entries, or three quarters
    /// of them are of the principal.
    entry* remember(const std::string& name, const acquire_request& request, std::size_t most) {
        if (entry* const known = find(name)) return known;
        const auto principal = of_principal_.find(request.holder.principal);
        const std::size_t used = principal == of_principal_.end() ? 0 : principal->second;
        if (by_name_.size() >= most || used >= most - most / 4) return nullptr;
        ++of_principal_[request.holder.principal];
        return &by_name_.emplace(name, entry{request}).first->second;
    }

    void forget(const std::string& name) {
        const auto found = by_name_.extract(name);
        const auto principal = of_principal_.find(found.mapped().request.holder.principal);
        if (--principal->second == 0) of_principal_.erase(principal);
    }

  private:
    std::unordered_map<std::string, entry> by_name_;
    std::unordered_map<std::string, std::size_t> of_principal_;
};

/// All decisions about the resources of one shard: their queues, attempts, handoffs, kept leases and retries, and which
/// nodes vote. It has no clock, no sockets, no threads and no randomness of its own: a driver passes in what happens
/// and performs what a step returns. runtime/shard drives it in the gateway, tests/sim in the simulation.
///
/// Its parts, each with its own state: wait_queues, kept_leases, validity_memory, lease_rounds (commands about existing
/// leases) and a node_link for each node. The core itself has the calls of acquire and what ends leases.
///
/// Files: core.cpp (steps, nodes, reading, the floor), core_acquiring.cpp (grants and further holds),
///        core_releasing.cpp (the end of leases, and of requests that are cancelled).
/// Threads: not safe.
/// Source:  docs/protocol.md.
class core final : private cluster_view {
  public:
    struct services {
        const config& settings;  ///< Has passed validate().
        const authenticator& mac;
        random_source& random;
        /// Of the cores of one manager, which see the same nodes, one reports quarantines and copies leases.
        bool leads = true;
    };

    explicit core(const services& provided);
    ~core() override;
    core(const core&) = delete;
    core& operator=(const core&) = delete;

    /// Takes what happened at `now` and returns what to do, in order. The times of successive steps never fall.
    std::vector<core_action> step(core_input&& what, const step_time& now);
    /// Returns when input::timer is due; empty if there is no timer.
    std::optional<monotonic_time> next_timer() const { return ctx_.timers.next(); }
    /// Returns whether input::flush is due. It may be delayed until what happened at the same time has been passed in.
    bool needs_flush() const { return ctx_.needs_flush; }
    /// Returns the interval between two input::tick.
    static milliseconds tick_length(const config& settings) { return core_context::tick_length(settings); }

    /// Names the channel `fg:wake:MARK` on which the nodes notify this core of leases that ended.
    const std::string& wake_mark() const { return wake_mark_; }
    node_status status(node_index node) const { return links_[value_of(node)]->status(); }
    /// Returns how many callers wait.
    std::size_t waiters() const { return queues_.count(); }
    /// Counts the waiting callers of each resource whose name begins with `prefix`.
    waiting_overview list_waiters(std::string_view prefix) const { return queues_.list(prefix); }

  private:
    /// A call of acquire until it is answered.
    struct acquire_call {
        call_id call{};
        acquire_request request;
        monotonic_time started_at{};
        bool cancelled = false;
        bool key_cancelled = false;                ///< And a repeat with its key must not get the lease.
        std::shared_ptr<acquire_attempt> attempt;  ///< The attempt in progress, or the last one.
        bool epoch_advanced = false;               ///< For this attempt.
        wait_queues::waiter* waiter = nullptr;     ///< Null: it is in no queue.
        /// The attempt by which a release hands its lease over to this waiter; null: none.
        std::shared_ptr<acquire_attempt> handoff;
    };
    /// The calls of acquire with one idempotency key until they are answered.
    struct keyed_calls {
        std::vector<call_id> calls;
        std::vector<std::function<void()>> when_answered;
    };
    using release_continuation = std::function<void(result<release_outcome>)>;

    // The inputs, in the order of core_io.hpp.
    void on(input::acquire what);
    void on(input::renew what);
    void on(input::inspect what);
    void on(input::cancel_request what);
    void on(input::release what);
    void on(input::revoke what);
    void on(input::close_to_new_holds what);
    void on(input::reopen what);
    void on(input::keep what);
    void on(input::watch what);
    void on(input::find_lease what);
    void on(input::announce_floor what);
    void on(const input::raise_hints& what);
    void on(input::list what);
    void on(const input::cancel& what);
    void on(const input::refuse_new_leases& what);
    void on(const input::connected& what);
    void on(const input::disconnected& what);
    void on(input::batch_answered what);
    void on(input::node_answered what);
    void on(input::register_answered what);
    void on(const input::lease_ended& what);
    void on(const input::start& what);
    void on(const input::stop& what);
    void on(const input::tick& what);
    void on(const input::timer& what);
    void on(const input::flush& what);
    std::string find_duplicate(node_index node, const std::string& run_id) const override;
    epoch highest_epoch() const override;
    epoch highest_plausible_epoch(node_index node) const override;
    std::vector<fast_readmission::source> find_sources(node_index node, std::size_t failed_tries) const override;
    std::vector<std::unique_ptr<node_link>> make_links(bool leads);
    /// `bound`: a text in front of the number of nodes, for when some have not answered.
    static failure occupied_by_another_value(std::vector<node_answer> answers, const node_set& nodes,
                                             const std::string& bound);

    struct announcement;
    void end_announcement(announcement& a);

    // core_acquiring.cpp
    /// `previous`: the lease that is handed over; null: none.
    std::shared_ptr<acquire_attempt> start_attempt(const acquire_request& request, const lease_claims* previous);
    /// Acts on the outcome of c.attempt when it is decided.
    void await_attempt(acquire_call& c);
    void attempt_decided(acquire_call& c);
    void attempt_granted(acquire_call& c);
    void attempt_refused(acquire_call& c);
    /// Draws an epoch for the tokens of the next attempt, and starts that.
    void advance_epoch(acquire_call& c);
    /// Adds a hold if the caller already holds the resources; fails with resource_locked if not.
    void reenter_if_held(acquire_call& c);
    /// Adds a hold to the lease `own` of the same holder, or returns the hold of the same idempotency key. `otherwise`:
    /// is called if the lease takes no further hold of this request.
    void reenter_lease(acquire_call& c, const lease_record& own, std::function<void()> otherwise);
    /// Returns whether a lease that was found is one of the holder and the resources of a request.
    static bool is_own(const acquire_request& request, const lease_record& found);
    /// Returns the LOOK that finds the caller's lease by the first resource, also among those that share it.
    static lease_call look_for(const acquire_request& request);
    /// Returns the claims of such a lease, without a hold.
    static lease_claims claims_of(const acquire_request& request, const lease_record& own);
    void repeat_hold(acquire_call& c, lease_claims claims, std::function<void()> otherwise);
    void add_hold(acquire_call& c, lease_claims claims, std::string key, bool known, std::function<void()> otherwise);
    /// Releases a hold that was not added, or not in time, and answers why; or calls `otherwise` if the lease is lost.
    void undo_hold(acquire_call& c, const round_attempt& round, const std::function<void()>& otherwise);
    /// Takes the outcome of an attempt: the call is answered or waits (again).
    void take_outcome(acquire_call& c, result<lease> outcome);
    void join_queue(acquire_call& c);
    /// Lets a waiter try again if it is its turn, end its wait, or sleep on.
    void continue_wait(acquire_call& c);
    void finish(acquire_call& c, result<lease> outcome);
    static bool is_retryable(const failure& f);
    static failure make_shutdown_failure();
    static failure make_cancelled_failure(const acquire_call& c);
    /// Records the event of an acquire.
    void record_outcome(const acquire_call& c, const result<lease>& outcome);

    // core_releasing.cpp
    /// `on_majority`: a majority has the lease. If not, no waiter gets it, nor tries unless a majority released it.
    void release(lease_claims claims, std::string origin, bool on_majority, release_continuation then);
    /// `became_free`: the waiters may acquire what was released; it was not handed over to one of them.
    result<release_outcome> release_decided(const lease_claims& claims, const std::string& origin,
                                            const majority_round& round, bool became_free);
    /// Hands a lease over to the next waiter for its resources. Null if no waiter can take it, or it is the turn of
    /// others.
    std::shared_ptr<acquire_attempt> hand_over(const lease_claims& claims);
    result<release_outcome> revoke_decided(const input::revoke& what, const majority_round& round);
    /// A call of this core ended the lease. `released`: its holder released it.
    void end_lease(const nonce& attempt, bool released);
    /// Searches for the lease of a cancelled request again after a pause, until the request is forgotten.
    void search_later(const std::string& name);
    /// Releases the hold that was taken with the idempotency key of a request, if there is one.
    void release_by_key(const acquire_request& request, release_continuation then);
    void end_keyed_call(const std::string& name, call_id call);

    const config& settings_;
    core_context ctx_;
    bool refusing_ = false, sending_delayed_ = false;
    std::string wake_mark_;
    std::vector<std::unique_ptr<node_link>> links_;
    token_memory observed_tokens_;
    epoch floor_{};  ///< The floor of the latest finished change of the storage generation that is known to this core.
    validity_memory validities_;
    wait_queues queues_;
    lease_rounds rounds_;
    kept_leases kept_;
    monotonic_time sweep_at_{};
    static constexpr std::chrono::seconds sweep_interval{1};

    std::unordered_map<call_id, std::unique_ptr<acquire_call>> acquiring_;
    std::unordered_map<std::string, keyed_calls> keyed_calls_;  ///< By the name of the request.
    cancelled_requests cancelled_requests_;
};

}  // namespace lockcore
