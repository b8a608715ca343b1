#pragma once

#include <lockcore/lock_manager.hpp>
#include <proto/wait_queue.hpp>
#include <redis/node_link.hpp>
#include <redis/release_subscription.hpp>
#include <runtime/attempt.hpp>
#include <runtime/ticket_counter.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockcore {

/// The resources of one thread: their queues, their attempts, and the connections to the nodes. A lease on several
/// resources belongs to the shard of the first of them.
///
/// Three files implement it: shard_waiting.cpp acquires leases and waits for them, shard_releasing.cpp releases them,
/// shard.cpp does the rest.
///
/// Threads: everything but status(), status_of() and waiters() on the thread of its io_context.
class shard final : public redis::link_observer {
  public:
    /// `reports_nodes`: this shard reports the quarantines, which every shard sees. `on_state_change`: called when a
    /// node's state changes for this shard.
    shard(const config& cfg, boost::asio::io_context& io, lock_manager::dependencies deps, bool reports_nodes,
          std::function<void(node_index)> on_state_change);

    void open();
    void close();
    void refuse_new_leases();

    boost::asio::awaitable<result<lease>> acquire(acquire_request request);
    /// `kept`: the call comes from keep(), which limits the time itself.
    boost::asio::awaitable<result<lease>> renew(lease_claims claims, milliseconds ttl, std::string trace_id,
                                                bool kept = false);
    boost::asio::awaitable<result<lease>> inspect(lease_claims claims);
    boost::asio::awaitable<result<release_outcome>> release(lease_claims claims, std::string trace_id);
    boost::asio::awaitable<result<close_outcome>> close_to_new_holds(lease_claims claims);
    void reopen(lease_claims claims, const close_outcome& closed);
    boost::asio::awaitable<result<release_outcome>> revoke(lease_claims claims, lock_manager::revocation revocation);
    boost::asio::awaitable<result<keep_step>> keep(kept_lease kept, std::string trace_id);
    boost::asio::awaitable<result<std::optional<live_lease>>> find_lease(resource_name resource);
    boost::asio::awaitable<result<lease_page>> list_leases(lease_query query);
    boost::asio::awaitable<result<leak_report>> find_leaks();
    boost::asio::awaitable<waiting_overview> list_waiters(std::string prefix);

    boost::asio::io_context& io() { return io_; }
    std::vector<node_status> status() const;
    node_status status_of(node_index node) const { return links_[value_of(node)]->status(); }
    /// Returns how many callers wait at this shard.
    std::size_t waiters() const { return waiter_count_.load(std::memory_order_relaxed); }

    std::string find_duplicate(node_index node, const std::string& run_id) const override;
    epoch highest_epoch() const override;
    void on_node_event(node_index node, event_kind kind, const std::string& detail) override;
    void on_state_changed(node_index node) override { on_state_change_(node); }

  private:
    /// Random bits from the generator of the operating system, for nonces.
    struct system_random final : random_source {
        std::uint64_t next() override;
        std::random_device device;
    };
    /// A coroutine that sleeps until a time, or until wake().
    struct sleeper {
        explicit sleeper(boost::asio::io_context& io) : timer(io) {}
        boost::asio::steady_timer timer;
        monotonic_time until;
        bool woken = false;
    };
    struct waiter : sleeper {
        waiter(boost::asio::io_context& io, const acquire_request& r) : sleeper(io), request(r) {}
        const acquire_request& request;
        bool trying = false;  ///< An attempt of this waiter is in progress.
        /// The attempt by which a release on this shard hands its lease over to this waiter; null: none.
        std::shared_ptr<acquire_attempt> hand_over_attempt;
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
    class queue_entry;

    // shard_waiting.cpp
    boost::asio::awaitable<result<lease>> try_acquire(const acquire_request& request, const std::string& queue_key);
    boost::asio::awaitable<result<lease>> refuse_acquire();
    /// Waits for the attempt and makes its lease or failure.
    boost::asio::awaitable<result<lease>> await_outcome(std::shared_ptr<acquire_attempt> attempt,
                                                        const acquire_request& request);
    boost::asio::awaitable<result<lease>> wait_in_queue(const acquire_request& request, const std::string& queue_key);
    /// Adds a hold if the caller already holds the resources; fails with resource_locked if not.
    boost::asio::awaitable<result<lease>> reenter_if_held(const acquire_request& request, const std::string& queue_key);
    /// Adds a hold to the lease `own` of the same holder, or returns the hold of the same idempotency key. Empty if the
    /// lease takes no further hold of this request.
    boost::asio::awaitable<std::optional<result<lease>>> reenter_lease(const acquire_request& request,
                                                                       const lease_record& own);
    /// Draws an epoch for the tokens of the next attempt. Returns false if the register does not answer.
    boost::asio::awaitable<bool> advance_epoch(const acquire_request& request);
    boost::asio::awaitable<void> sleep(sleeper& s);
    /// `previous`: the lease that is handed over; null: none.
    std::shared_ptr<acquire_attempt> start_attempt(const acquire_request& request, const lease_claims* previous);
    /// Hands the lease over to the head of its queue. Null if no waiter can take it, or it is the turn of others.
    std::shared_ptr<acquire_attempt> hand_over(const lease_claims& claims);
    static result<lease> make_shutdown_failure();
    /// `bound`: a text in front of the number of nodes, for when some have not answered.
    static failure occupied_by_another_value(std::vector<node_answer> answers, const node_set& nodes,
                                             const std::string& bound);
    /// Reports the event of an acquire.
    void record_outcome(const acquire_request& request, const result<lease>& outcome, monotonic_time started_at);
    failure make_locked_failure(const std::string& queue_key) const;
    /// Returns whether the head of another queue also waits for one of these resources, with a ticket below `ticket`.
    bool has_earlier_waiter(const lease_claims& claims, wait_queue::ticket ticket) const;
    void on_lease_released(const lease_claims& claims, bool others_wait);
    turn find_turn(const std::string& queue_key) const;
    void remove_expired_turns();
    void on_remote_release(node_index node, const nonce& ended, std::string_view resource);
    static bool is_retryable(const failure& f);
    /// Lets the head of a queue try after `delay`, or earlier if it already intended to.
    void schedule_head_retry(const std::string& queue_key, milliseconds delay);
    /// Lets the head of a queue try at `time`, and not earlier.
    void reschedule_head_retry(const std::string& queue_key, monotonic_time time);
    void wake(sleeper& s);

    void tick(boost::system::error_code e);
    redis::lease_call call_for(const lease_claims& claims) const;
    /// Sends RELEASE without waiting for the answers.
    void release_in_background(redis::lease_call call, lease_claims claims);
    /// Prevents further TOP-UPs for one hold of a lease; for all of its holds if `hold` is null.
    void stop_top_ups(const nonce& attempt, const hold_id* hold);
    boost::asio::awaitable<std::shared_ptr<round_attempt>> run_round(command_kind kind, redis::lease_call call,
                                                                     lease_claims claims);
    lease make_lease(lease_claims claims, milliseconds ttl, validity_time valid_until,
                     const majority_round& round) const;
    /// A call on this shard ended the lease.
    void on_lease_ended(const nonce& attempt);
    /// Wakes the keep() calls of a lease that ended.
    void notify_keepers(const nonce& ended);
    event make_event(event_kind kind, const lease_claims& claims, const std::string& trace_id, std::string detail,
                     milliseconds ttl) const;
    void emit(event_kind kind, const lease_claims& claims, const std::string& trace_id, std::string detail,
              milliseconds ttl);

    const config& config_;
    boost::asio::io_context& io_;
    lock_manager::dependencies deps_;
    bool reports_nodes_;
    std::function<void(node_index)> on_state_change_;
    system_random random_;
    std::minstd_rand jitter_;
    std::string wake_mark_;  ///< Names the channel on which the nodes notify this shard of leases that ended.
    std::vector<std::shared_ptr<redis::node_link>> links_;
    std::vector<std::shared_ptr<redis::release_subscription>> subscriptions_;
    boost::asio::steady_timer ticker_;
    bool open_ = false, refusing_ = false;
    std::unordered_map<std::string, queue> queues_;  ///< By resource; only resources with waiters have an entry.
    std::unordered_map<wait_queue::ticket, waiter*> waiters_;
    std::atomic<std::size_t> waiter_count_{0};  ///< The size of waiters_, for other threads.
    ticket_counter tickets_{config_.waiters_max};
    /// Waiters for several resources, which queue for the first one: from each of the other resources to the first.
    std::unordered_multimap<std::string, std::string> secondary_waits_;
    std::multimap<std::string, sleeper*> keepers_;  ///< The keep() calls in progress, by nonce.
    /// Leases that ended, the newest last, for a keeper that is between two calls of keep().
    std::deque<nonce> ended_leases_;
    static constexpr std::size_t ended_leases_max = 256;
    std::unordered_map<std::string, turn> turns_;  ///< By resource.
    monotonic_time sweep_turns_at_{};
    static constexpr std::chrono::seconds sweep_turns_interval{1};
    /// Renewals in progress, by nonce: a release prevents their TOP-UPs.
    std::unordered_multimap<std::string, std::weak_ptr<round_attempt>> renewing_;
    std::shared_ptr<round_repeater> repeater_;
    bool listing_ = false, finding_leaks_ = false;
    std::shared_ptr<token_memory> observed_tokens_ = std::make_shared<token_memory>();
};

}  // namespace lockcore
