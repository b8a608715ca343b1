#pragma once

#include <lockcore/lock_manager.hpp>
#include <proto/wait_queue.hpp>
#include <redis/node_link.hpp>
#include <redis/wake_feed.hpp>
#include <runtime/attempt.hpp>
#include <runtime/ticket_counter.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <deque>
#include <functional>
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
/// Three files: shard_waiting.cpp takes leases and waits for them, shard_releasing.cpp gives them back, shard.cpp does
/// the rest.
/// Threads: everything but status() on the thread of its io_context.
class shard final : public redis::link_observer {
  public:
    /// `on_state`: called when this shard sees a node in another state.
    shard(const config& cfg, boost::asio::io_context& io, lock_manager::dependencies deps, bool reports_nodes,
          std::function<void(node_index)> on_state);

    void open();
    void close();
    void refuse_new_leases();

    boost::asio::awaitable<result<lease>> acquire(acquire_request request);
    /// `kept`: by keep(), which bounds the time itself.
    boost::asio::awaitable<result<lease>> renew(lease_claims claims, milliseconds ttl, std::string trace_id,
                                                bool kept = false);
    boost::asio::awaitable<result<lease>> inspect(lease_claims claims);
    boost::asio::awaitable<result<release_outcome>> release(lease_claims claims, std::string trace_id);
    boost::asio::awaitable<result<closing>> close_to_holds(lease_claims claims);
    void reopen(lease_claims claims, const closing& closed);
    boost::asio::awaitable<result<release_outcome>> revoke(lease_claims claims, lock_manager::revocation why);
    boost::asio::awaitable<result<keep_step>> keep(kept_lease kept, std::string trace_id);
    boost::asio::awaitable<result<std::optional<live_lease>>> look(resource_name resource);
    boost::asio::awaitable<result<lease_page>> list(lease_query query);
    boost::asio::awaitable<result<leak_report>> find_leaks();
    boost::asio::awaitable<waiting_overview> waiting(std::string prefix);

    boost::asio::io_context& io() { return io_; }
    std::vector<node_status> status() const;
    node_status status_of(node_index node) const { return links_[value_of(node)]->status(); }
    /// How many wait here. From any thread.
    std::size_t waiters() const { return waiting_.load(std::memory_order_relaxed); }

    std::string same_server(node_index asking, const std::string& run_id) const override;
    epoch highest_epoch() const override;
    void node_changed(node_index node, event_kind kind, const std::string& detail) override;
    void state_changed(node_index node) override { on_state_(node); }

  private:
    /// Bits for nonces: from the operating system's generator.
    struct system_random final : random_source {
        std::uint64_t next() override;
        std::random_device device;
    };
    /// Sleeps until a time, or until somebody wakes it.
    struct sleeper {
        explicit sleeper(boost::asio::io_context& io) : timer(io) {}
        boost::asio::steady_timer timer;
        monotonic_time until;
        bool woken = false;
    };
    struct waiter : sleeper {
        waiter(boost::asio::io_context& io, const acquire_request& r) : sleeper(io), request(r) {}
        const acquire_request& request;
        bool trying = false;                      ///< An attempt of its own is under way.
        std::shared_ptr<acquire_attempt> handed;  ///< A release here has begun to hand its lease over to this waiter.
    };
    struct queue {
        wait_queue order;
        monotonic_time held_until{};  ///< When the holder's lease runs out, as far as the head has heard.
    };
    /// What is kept of a resource's turns while nobody waits for it here.
    struct turn {
        std::uint32_t handed_over = 0;   ///< How often running; the last of them has the lease.
        monotonic_time others_first{};   ///< Until when those who wait at other managers go first.
        monotonic_time forget_handed{};  ///< When that last one's lease has run out.
    };
    class place_in_queue;

    // shard_waiting.cpp
    boost::asio::awaitable<result<lease>> first_try(const acquire_request& request, const std::string& home);
    boost::asio::awaitable<result<lease>> refuse();
    boost::asio::awaitable<result<lease>> settle(std::shared_ptr<acquire_attempt> attempt,
                                                 const acquire_request& request);
    boost::asio::awaitable<result<lease>> wait_in_queue(const acquire_request& request, const std::string& home);
    boost::asio::awaitable<result<lease>> enter_again(const acquire_request& request, const std::string& home);
    boost::asio::awaitable<std::optional<result<lease>>> enter_again(const acquire_request& request,
                                                                     const lease_record& own);
    boost::asio::awaitable<bool> leave_used_up_epoch(const acquire_request& request);
    boost::asio::awaitable<void> sleep(sleeper& s);
    /// `previous`: the lease that is handed over; null: none.
    std::shared_ptr<acquire_attempt> start_attempt(const acquire_request& request, const lease_claims* previous);
    std::shared_ptr<acquire_attempt> hand_over(const lease_claims& claims);
    static result<lease> no_new_leases();
    /// `bound` stands before the number of nodes, where some have not answered yet.
    static failure occupied_by_another_value(std::vector<node_answer> answers, const node_set& nodes,
                                             const std::string& bound);
    void note(const acquire_request& request, const result<lease>& outcome, monotonic_time asked_at);
    failure locked_now(const std::string& home) const;
    /// Whether one who waits for several of these resources, and is next where it stands, has come before `than`.
    bool waits_longer(const lease_claims& claims, wait_queue::ticket than) const;
    void given_back(const lease_claims& claims, bool others_wait);
    turn turn_of(const std::string& home) const;
    void forget_turns();
    void ended_elsewhere(node_index node, const nonce& ended, std::string_view resource);
    static bool worth_waiting(const failure& f);
    void let_head_look(const std::string& home, milliseconds pause);
    void let_head_look_at(const std::string& home, monotonic_time at);
    void wake(sleeper& s);

    void tick(boost::system::error_code e);
    redis::lease_call call_for(const lease_claims& claims) const;
    void release_behind(redis::lease_call call, lease_claims claims);
    void stop_top_ups(const nonce& attempt, const hold_id* of_hold);
    boost::asio::awaitable<std::shared_ptr<round_attempt>> run_round(command_kind kind, redis::lease_call call,
                                                                     lease_claims claims);
    lease make_lease(lease_claims claims, milliseconds ttl, validity_time valid_until,
                     const majority_round& round) const;
    void ended_here(const nonce& attempt);
    void tell_keepers(const nonce& ended);
    event make_event(event_kind kind, const lease_claims& claims, const std::string& trace_id, std::string detail,
                     milliseconds ttl) const;
    void emit(event_kind kind, const lease_claims& claims, const std::string& trace_id, std::string detail,
              milliseconds ttl);

    const config& config_;
    boost::asio::io_context& io_;
    lock_manager::dependencies deps_;
    bool reports_nodes_;
    std::function<void(node_index)> on_state_;
    system_random random_;
    std::minstd_rand chance_;
    std::string mark_;  ///< Under which the nodes tell this shard of leases that ended.
    std::vector<std::shared_ptr<redis::node_link>> links_;
    std::vector<std::shared_ptr<redis::wake_feed>> feeds_;
    boost::asio::steady_timer ticker_;
    bool open_ = false, refusing_ = false;
    std::unordered_map<std::string, queue> queues_;  ///< Only resources with waiters have an entry.
    std::unordered_map<wait_queue::ticket, waiter*> waiters_;
    std::atomic<std::size_t> waiting_{0};  ///< Of waiters_, for other threads.
    ticket_counter tickets_{config_.waiters_max};
    /// Waiters for several resources queue under the first; here are the others, each with that first one.
    std::unordered_multimap<std::string, std::string> also_waited_for_;
    std::unordered_multimap<std::string, sleeper*> keepers_;  ///< By nonce.
    /// Leases that ended, the newest last: their keepers may be on their way from one keep() to the next.
    std::deque<nonce> ends_;
    static constexpr std::size_t ends_max = 256;
    std::unordered_map<std::string, turn> turns_;  ///< Swept from time to time.
    monotonic_time sweep_turns_at_{};
    static constexpr std::chrono::seconds sweep_turns_every{1};
    /// Renewals under way, by nonce: a release stops them from putting the lease back.
    std::unordered_multimap<std::string, std::weak_ptr<round_attempt>> renewing_;
    std::shared_ptr<round_repeater> repeater_;
    bool listing_ = false, finding_leaks_ = false;
    std::shared_ptr<token_memory> heard_ = std::make_shared<token_memory>();
};

}  // namespace lockcore
