#pragma once

#include <proto/acquire_machine.hpp>
#include <proto/majority_round.hpp>
#include <proto/survey.hpp>
#include <proto/wait_queue.hpp>
#include <sim/parts/calls.hpp>
#include <sim/parts/sim_link.hpp>

#include <deque>
#include <map>
#include <memory>
#include <vector>

namespace sim {

/// Returns a reply with this status and nothing else.
inline lockcore::node_reply status_reply(lockcore::reply_status status) {
    lockcore::node_reply r;
    r.status = status;
    return r;
}

/// Simulates a gateway in place of lockcore/runtime: it runs the product's state machines over simulated links as
/// attempt.cpp, shard.cpp and shard_waiting.cpp do. It stores only the highest observed tokens and its queues, and may
/// crash at any time. sim_waiting.cpp has re-entry and waiting, sim_attempts.cpp evaluates the replies of the nodes,
/// sim_gateway.cpp does the rest.
class sim_gateway {
  public:
    sim_gateway(context& ctx, network& net, epoch_register& epochs, checkers& check, client_interface& clients,
                std::vector<sim_node>& nodes, std::uint32_t index, drifting_clock clock);
    sim_gateway(const sim_gateway&) = delete;

    void start();
    void crash();
    void pause_until(sim_time until);
    void resume() { paused_until_ = sim_time{0}; }

    bool runs() const { return runs_; }
    sim_time paused_until() const { return paused_until_; }
    const drifting_clock& clock() const { return clock_; }

    void on_call(const call& c);
    /// The client cancelled the call.
    void on_client_gone(const call& c);
    /// A node published that a lease ended.
    void on_release_message(std::uint32_t node, const release_message& w);
    void on_waiter_timer(std::uint32_t ticket, std::uint32_t serial);
    sim_link& link(std::uint32_t node) { return *links_[node]; }

    // Called by its links.
    /// `last`: no other answer to this request follows.
    void on_reply(const request& asked, std::uint32_t node, const lockcore::node_reply& r, bool last);
    std::uint64_t highest_epoch() const;
    std::uint32_t new_claim() { return static_cast<std::uint32_t>(ctx_.rng.next() >> 40) + 1; }

  private:
    using ticket = std::uint32_t;  ///< Identifies a waiter; 0: none.
    struct attempt {
        attempt(const call& c, lockcore::command_kind k, std::size_t nodes)
            : client_call(c), command(k), acquisition(nodes), round(nodes), survey(nodes), previous(nodes) {}
        call client_call;
        lockcore::command_kind command;
        ticket waiter_ticket = 0;  ///< The waiter for whom it runs.
        request base_request;
        lockcore::acquire_machine acquisition;  ///< ACQUIRE
        lockcore::majority_round round;         ///< The other commands
        lockcore::survey survey;                ///< LOOK
        lockcore::majority_round previous;      ///< HAND-OVER: the release of the previous lease.
        std::optional<call> pending_release;    ///< HAND-OVER: the release call that started it.
        bool before_queueing = false;           ///< HOLD, INSPECT: sent before the call joins a queue.
        milliseconds locked_remaining{0};       ///< HOLD, INSPECT: the remaining time that the refusal reported.
        microseconds started{0};                ///< By the gateway's clock, before the first send.
        microseconds first_reply{0};
        checkers::token_floors before{};
        std::uint32_t awaited = 0;  ///< Requests that may still be answered.
        bool decided = false;       ///< The outcome is known; answers may still arrive.
        bool complete = false, confirmed = false, undone = false;
        bool timed_out = false;
        bool clean = true;  ///< No connection broke, so every undo was executed.
        bool may_top_up = true;
        lockcore::node_set topped_up;
        std::array<run_number, sim_nodes_max> undone_in{};
        sim_time undone_at{};
        std::array<std::uint64_t, sim_nodes_max> stale_at{};  ///< Only with mutation::stale_counts.
        bool in_use = true;
    };
    struct waiter {
        call asked;
        microseconds deadline{0}, retry_at{0};  ///< By the gateway's clock.
        bool trying = false, retry_now = false;
        std::uint32_t timer_serial = 0;  ///< Only the timer with this serial is valid.
        milliseconds last_remaining{0};
    };

    // sim_gateway.cpp
    std::uint32_t new_attempt(const call& c, lockcore::command_kind command);
    struct previous_lease {
        sim_nonce nonce = 0;
        hold_number hold = 0;
    };
    void start_attempt(const call& c, ticket waiter_ticket, previous_lease previous, const call* pending_release);
    void start_round(const call& c, lockcore::command_kind command);
    void begin_round(std::uint32_t at);
    lockcore::reply_status send(std::uint32_t at, std::uint32_t node, lockcore::command_kind command,
                                std::uint64_t token);
    void free_if_finished(std::uint32_t at);
    void answer_client(const call& c, const call_answer& answer);
    microseconds local_time() const { return clock_.of(ctx_.now()); }
    std::uint64_t hint_for(resource_set set) const;
    void record_token(resource_set set, std::uint64_t token);
    wake_mark mark() const { return incarnation_ * sim_gateways_max + index_ + 1; }

    // sim_attempts.cpp
    void perform(std::uint32_t at, lockcore::acquire_machine::step step);
    void acquire_answered(std::uint32_t at, std::uint32_t node, lockcore::command_kind command, std::uint64_t token,
                          lockcore::node_reply r);
    void record_previous(attempt& a, std::uint32_t node, const lockcore::node_reply& r);
    void round_answered(std::uint32_t at, std::uint32_t node, lockcore::node_reply r);
    void count_probes(const attempt& a, std::uint64_t token_before, lockcore::command_kind command,
                      const lockcore::node_reply& r);
    void acquire_done(std::uint32_t at);
    void round_done(std::uint32_t at);
    void release_done(const call& c, const lockcore::majority_round& round, bool handed_over);
    void top_up(std::uint32_t at);
    void undo(std::uint32_t at);
    void release_previous(const attempt& a, std::uint32_t node);

    // sim_waiting.cpp
    void handle_acquire(const call& c);
    void handle_release(const call& c);
    /// Ends an attempt: answers the client, or lets the waiter of `waiter_ticket` wait on.
    void finish_call(const call& c, ticket waiter_ticket, const call_answer& answer);
    bool reenter_lease(const call& c, ticket waiter_ticket, const lockcore::lease_record& own, bool before_queueing,
                       milliseconds locked_remaining);
    void on_reentered(std::uint32_t at);
    void on_reentry_refused(const attempt& a);
    void survey_done(std::uint32_t at);
    void undo_hold(std::uint32_t at);
    void join_or_refuse(const call& c);
    void poll_waiter(ticket t);
    void leave_queue(ticket t, bool granted);
    void schedule_head_retry(std::uint32_t queue_key, milliseconds pause);
    void on_local_release(resource_set set, bool others_wait);
    /// Stops the top-ups of running renewals. `hold` 0: of all holds.
    void stop_top_ups(sim_nonce nonce, hold_number hold);

    context& ctx_;
    network& net_;
    checkers& check_;
    client_interface& clients_;
    std::vector<sim_node>& nodes_;
    std::uint32_t index_;
    drifting_clock clock_;
    bool runs_ = false;
    std::uint32_t incarnation_ = 0;
    sim_time paused_until_{0};
    std::vector<std::unique_ptr<sim_link>> links_;
    std::deque<attempt> attempts_;
    std::vector<std::uint32_t> free_;
    std::array<std::uint64_t, sim_resources_max> highest_{};  ///< The highest observed token of each bucket.
    std::array<std::optional<lockcore::wait_queue>, sim_resources_max> queues_;
    std::map<ticket, waiter> waiters_;
    ticket last_ticket_ = 0;
};

}  // namespace sim
