#pragma once

#include <proto/attempts.hpp>
#include <proto/cancelled_requests.hpp>
#include <proto/ended_memory.hpp>
#include <proto/ticket_counter.hpp>
#include <proto/wait_queue.hpp>

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

namespace lockcore {

/// All decisions about the resources of one shard: their queues, attempts, hand-overs, kept leases and retries, and which
/// nodes vote. It has no clock, no sockets, no threads and no randomness of its own: a driver passes in what happens and
/// performs what a step returns. runtime/shard drives it in the gateway, tests/sim in the simulation.
///
/// Files: core.cpp (steps, renewals, reading), core_acquiring.cpp (grants and further holds), core_waiting.cpp (queues),
///        core_cancelling.cpp, core_releasing.cpp, core_keeping.cpp, core_floor.cpp.
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

    explicit core(const services& with);
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
    std::size_t waiters() const { return waiting_.size(); }
    /// Counts the waiting callers of each resource whose name begins with `prefix`.
    waiting_overview list_waiters(std::string_view prefix) const;

  private:
    /// A call of acquire until it is answered.
    struct acquire_call {
        call_id call{};
        acquire_request request;
        std::string queue_key;  ///< The first resource.
        monotonic_time started_at{};
        bool cancelled = false;
        bool key_cancelled = false;                ///< And a repeat with its key must not get the lease.
        std::shared_ptr<acquire_attempt> attempt;  ///< The attempt in progress, or the last one.
        bool epoch_advanced = false;               ///< For this attempt.

        // From here on for a call that is in a queue.
        wait_queue::ticket ticket = 0;      ///< 0: it is in no queue.
        std::shared_ptr<void> admission{};  ///< From acquire_request::admit_waiter.
        monotonic_time give_up_at{};
        monotonic_time until{};  ///< It sleeps until then, or until it is woken.
        bool woken = false;
        bool trying = false;  ///< An attempt of this waiter is in progress.
        timer_list::handle timer;
        /// The attempt by which a release hands its lease over to this waiter; null: none.
        std::shared_ptr<acquire_attempt> hand_over_attempt;
        std::optional<failure> last_refusal;
    };
    /// A call of keep or watch until it is answered.
    struct keep_call {
        call_id call{};
        kept_lease kept;
        std::string trace_id;
        bool cancelled = false, woken = false;
        bool sleeping = false;  ///< If not, a round is in progress.
        bool watches = false;   ///< It renews nothing.
        bool released = false;  ///< The holder is known to have released the lease.
        monotonic_time watched_until{};
        std::optional<result<lease>> seen;  ///< Of watch: what the latest round found.
        monotonic_time until{};
        timer_list::handle timer;
    };
    struct queue {
        wait_queue order;
        monotonic_time held_until{};  ///< The end of the present lease, by the last answer to the head.
    };
    /// What keeps the turns between this manager and others for one resource, also while it has no waiter here.
    struct turn {
        std::uint32_t handed_over = 0;          ///< The hand-overs in a row; the last waiter holds the lease.
        monotonic_time yield_until{};           ///< Until then waiters of other managers may acquire first.
        monotonic_time hand_over_expires_at{};  ///< When the lease of the last hand-over expires.
    };
    /// The calls of acquire with one idempotency key until they are answered.
    struct keyed_calls {
        std::vector<call_id> calls;
        std::vector<std::function<void()>> when_answered;
    };
    using round_continuation = std::function<void(round_attempt&)>;
    using release_continuation = std::function<void(result<release_outcome>)>;

    // core.cpp
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
    template <class Result>
    void answer(call_id call, Result outcome) {
        ctx_.act(action::answer{call, call_result(std::move(outcome))});
    }
    lease_call call_for(const lease_claims& claims) const;
    void run_round(command_kind kind, lease_call call, lease_claims claims, round_continuation then);
    void start_round(command_kind kind, lease_call call, lease_claims claims, bool may_upgrade,
                     round_continuation then);
    void renew(lease_claims claims, milliseconds ttl, std::string trace_id, bool kept,
               std::function<void(result<lease>)> then);
    /// `watches`: leaves the wake mark of this core in the lease, so that the nodes notify it of the end.
    void inspect(lease_claims claims, std::function<void(result<lease>, const majority_round&)> then,
                 bool watches = false);
    /// Lets the lease count again on nodes that were restarted, and repeats the round. Returns false if this core does
    /// not know that the lease is still valid.
    bool upgrade(round_attempt& uncounted, round_continuation then);
    /// Records until when a lease is valid that was granted or extended here.
    void remember_validity(const lease_claims& claims, validity_time until);
    void forget_expired_validities();
    /// Returns why a round has not done what was asked; empty if a majority did it. Says nothing of limits, which only
    /// RENEW and HOLD have, nor of other holds (CLOSE).
    ///
    /// In: `no_quorum`: the detail if too few nodes answered.
    std::optional<failure> round_failure(const majority_round& round, const lease_claims& claims,
                                         const char* no_quorum) const;
    /// Says why a majority of the nodes does not hold the lease, or this hold of it, as far as this core knows.
    failure lease_is_lost(const lease_claims& claims) const;
    lease make_lease(lease_claims claims, milliseconds ttl, validity_time valid_until,
                     const majority_round& round) const;
    /// Returns the time left of a validity, which may be negative.
    milliseconds remaining_until(validity_time end) const;
    void set_validity(lease& granted, validity_time valid_until) const;
    /// `bound`: a text in front of the number of nodes, for when some have not answered.
    static failure occupied_by_another_value(std::vector<node_answer> answers, const node_set& nodes,
                                             const std::string& bound);
    event make_event(event_kind kind, const lease_claims& claims, const std::string& trace_id, std::string detail,
                     milliseconds ttl) const;
    void record(event_kind kind, const lease_claims& claims, const std::string& trace_id, std::string detail,
                milliseconds ttl);

    // core_floor.cpp
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
    /// Returns the claims of such a lease, without a hold.
    static lease_claims claims_of(const acquire_request& request, const lease_record& own);
    void repeat_hold(acquire_call& c, lease_claims claims, std::function<void()> otherwise);
    void add_hold(acquire_call& c, lease_claims claims, std::string key, bool known, std::function<void()> otherwise);
    /// Takes the outcome of an attempt: the call is answered or waits (again).
    void take_outcome(acquire_call& c, result<lease> outcome);
    void finish(acquire_call& c, result<lease> outcome);
    static bool is_retryable(const failure& f);
    static failure make_shutdown_failure();
    static failure make_cancelled_failure(const acquire_call& c);
    /// Records the event of an acquire.
    void record_outcome(const acquire_call& c, const result<lease>& outcome);

    // core_cancelling.cpp
    /// Searches for the lease of a cancelled request again after a pause, until the request is forgotten.
    void search_later(const std::string& name);
    /// Releases the hold that was taken with the idempotency key of a request, if there is one.
    void release_by_key(const acquire_request& request, release_continuation then);
    void end_keyed_call(const std::string& name, call_id call);

    // core_waiting.cpp
    /// Adds a place in the queue of the request's first resource.
    void join_queue(acquire_call& c);
    /// When the head leaves without a lease, the next waiter tries at once. When it leaves with a lease, the lease is
    /// usually released here, and until then the next waiter tries only at intervals.
    void leave_queue(acquire_call& c, bool granted);
    /// An attempt of the waiter was refused.
    void wait_on(acquire_call& c, failure refusal);
    /// Lets a waiter try again if it is its turn, end its wait, or sleep on.
    void poll(acquire_call& c);
    void sleep(acquire_call& c);
    /// Lets a waiter poll at the end of this step.
    void wake(acquire_call& c);
    void give_up(acquire_call& c);
    failure make_locked_failure(const std::string& queue_key) const;
    /// Returns whether the head of another queue also waits for one of these resources, with a ticket below `ticket`.
    bool has_earlier_waiter(const lease_claims& claims, wait_queue::ticket ticket) const;
    void on_lease_released(const lease_claims& claims, bool others_wait);
    turn find_turn(const std::string& queue_key) const;
    void remove_expired_turns();
    acquire_call& head_of(const queue& q) const { return *waiting_.at(q.order.head()); }
    /// Lets the head of a queue try after `delay`, or earlier if it already intended to.
    void schedule_head_retry(const std::string& queue_key, milliseconds delay);
    /// Lets the head of a queue try at `time`, and not earlier.
    void reschedule_head_retry(const std::string& queue_key, monotonic_time time);
    /// Hands the lease over to the head of its queue. Null if no waiter can take it, or it is the turn of others.
    std::shared_ptr<acquire_attempt> hand_over(const lease_claims& claims);

    // core_releasing.cpp
    void release(lease_claims claims, std::string trace_id, release_continuation then);
    result<release_outcome> release_decided(const lease_claims& claims, const std::string& trace_id,
                                            const majority_round& round, bool handed_over);
    /// Sends RELEASE without waiting for the answers.
    void release_in_background(lease_call call, lease_claims claims);
    /// Prevents further TOP-UPs for one hold of a lease; for all of its holds if `hold` is null.
    void stop_top_ups(const nonce& attempt, const hold_id* hold);
    /// A call of this core ended the lease.
    void on_lease_ended(const nonce& attempt, bool released);

    // core_keeping.cpp
    void sleep(keep_call& k, milliseconds delay);
    void resume(keep_call& k);
    void look(keep_call& k);
    template <class Outcome>
    void finish(keep_call& k, result<Outcome> outcome);
    void finish(keep_call& k, keep_step::outcome outcome, std::string reason);
    /// Wakes the calls of keep() and watch() of a lease that ended.
    void notify_keepers(const nonce& ended, bool released);
    /// Wakes those of one hold, whose lease has other holds.
    void notify_keepers_of_hold(const lease_claims& released);
    void wake(keep_call& k, bool released);

    const config& settings_;
    core_context ctx_;
    bool refusing_ = false, sending_delayed_ = false;
    std::string wake_mark_;
    std::vector<std::unique_ptr<node_link>> links_;
    round_repeater repeater_;
    token_memory observed_tokens_;
    epoch floor_{};  ///< The floor of the latest finished change of the storage generation that is known to this core.
    std::unordered_map<call_id, std::unique_ptr<acquire_call>> acquiring_;
    std::unordered_map<call_id, std::unique_ptr<keep_call>> keeping_;
    std::unordered_map<std::string, keyed_calls> keyed_calls_;  ///< By the name of the request.
    cancelled_requests cancelled_requests_;

    std::unordered_map<std::string, queue> queues_;  ///< By resource; only resources with waiters have an entry.
    std::unordered_map<wait_queue::ticket, acquire_call*> waiting_;
    ticket_counter tickets_;
    /// Waiters for several resources, which queue for the first one: from each of the other resources to the first.
    std::unordered_multimap<std::string, std::string> secondary_waits_;
    std::unordered_map<std::string, turn> turns_;  ///< By resource.
    monotonic_time sweep_turns_at_{};
    static constexpr std::chrono::seconds sweep_turns_interval{1};

    std::multimap<std::string, keep_call*> keepers_;  ///< By nonce.
        /// Leases that ended, the newest last, for a keeper that is between two calls of keep().
    std::deque<nonce> ended_leases_;
    static constexpr std::size_t ended_leases_max = 256;
    /// What is known of a lease that was granted or extended here.
    struct known_validity {
        fencing_token token{};
        validity_time until{};
    };
    struct nonce_hash {
        std::size_t operator()(const nonce& n) const { return std::hash<std::string_view>{}(n.str()); }
    };
    std::unordered_map<nonce, known_validity, nonce_hash> validities_;  ///< For UPGRADE.
    static constexpr std::size_t validities_max = 65'536;
    ended_memory released_;  ///< The ids of holds that were released here, and the nonces of revoked leases.
    /// Renewals in progress: a release prevents their TOP-UPs.
    std::unordered_multimap<nonce, std::weak_ptr<round_attempt>, nonce_hash> renewing_;
};

}  // namespace lockcore
