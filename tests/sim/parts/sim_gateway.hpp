#pragma once

#include <proto/acquire.hpp>
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

/// A reply that says nothing else.
inline lockcore::node_reply only(lockcore::reply_status status) {
    lockcore::node_reply r;
    r.status = status;
    return r;
}

/// A gateway, standing in for lockcore/runtime: drives the product's own state machines over simulated links as
/// attempt.cpp, shard.cpp and shard_waiting.cpp do. It keeps nothing but the highest tokens it heard of and its queues,
/// and may die at any moment. sim_waiting.cpp takes leases again and waits for them, sim_attempts.cpp evaluates the
/// nodes' replies, sim_gateway.cpp does the rest.
class sim_gateway {
  public:
    sim_gateway(context& ctx, network& net, epoch_register& epochs, checkers& check, callers& clients,
                std::vector<sim_node>& nodes, std::uint32_t index, drifting_clock clock);
    sim_gateway(const sim_gateway&) = delete;

    void start();
    void crash();
    void pause_until(sim_time until);
    void resume() { paused_until_ = sim_time{0}; }

    bool runs() const { return runs_; }
    sim_time paused_until() const { return paused_until_; }
    const drifting_clock& clock() const { return clock_; }

    void called(const call& c);
    /// Whoever made the call has gone away.
    void dropped(const call& c);
    /// A node told that a lease ended.
    void told_of_end(std::uint32_t node, const wake& w);
    void waiter_wakes(std::uint32_t ticket, std::uint32_t serial);
    sim_link& link(std::uint32_t node) { return *links_[node]; }

    // For its links.
    /// `last`: no other answer to this request will come.
    void on_reply(const request& asked, std::uint32_t node, const lockcore::node_reply& told, bool last);
    std::uint64_t highest_epoch() const;
    std::uint32_t new_claim() { return static_cast<std::uint32_t>(ctx_.chance.next() >> 40) + 1; }

  private:
    using ticket = std::uint32_t;  ///< A place in a queue; 0: none.
    struct attempt {
        attempt(const call& c, lockcore::command_kind k, std::size_t nodes)
            : asked_for(c), what(k), taking(nodes), round(nodes), survey(nodes), previous(nodes) {}
        call asked_for;
        lockcore::command_kind what;
        ticket for_whom = 0;  ///< A try of one who waits.
        request built;
        lockcore::acquire taking;           ///< ACQUIRE
        lockcore::majority_round round;     ///< The others
        lockcore::survey survey;            ///< LOOK
        lockcore::majority_round previous;  ///< HAND-OVER: what became of the lease that is given back.
        std::optional<call> gives_back;     ///< HAND-OVER: whose release began it.
        bool instead_of_waiting = false;    ///< HOLD, INSPECT: asked before a place in the queue was taken.
        milliseconds locked_for{0};         ///< HOLD, INSPECT: what the refused attempt heard.
        microseconds started{0};            ///< By the gateway's clock, before the first send.
        microseconds first_reply{0};
        checkers::floors before{};
        std::uint32_t awaited = 0;  ///< Requests that may still be answered.
        bool told = false;          ///< It is over, late answers apart.
        bool complete = false, confirmed = false, undone = false;
        bool timed_out = false;
        bool clean = true;  ///< No connection broke: what was undone is undone.
        bool may_top_up = true;
        lockcore::node_set topped_up;
        std::array<run_number, sim_nodes_max> undone_in{};
        sim_time undone_at{};
        std::array<std::uint64_t, sim_nodes_max> stale_at{};  ///< Only with mutation::stale_counts.
        bool in_use = true;
    };
    struct waiter {
        call asked;
        microseconds give_up_at{0}, until{0};  ///< By the gateway's clock.
        bool trying = false, woken = false;
        std::uint32_t planned = 0;  ///< Counts times to wake: only the latest is.
        milliseconds last_left{0};
    };

    // sim_gateway.cpp
    std::uint32_t new_attempt(const call& c, lockcore::command_kind what);
    struct lease_of_before {
        sim_nonce nonce = 0;
        hold_number hold = 0;
    };
    void start_attempt(const call& c, ticket for_whom, lease_of_before previous, const call* gives_back);
    void start_round(const call& c, lockcore::command_kind what);
    void begin_round(std::uint32_t at);
    lockcore::reply_status send(std::uint32_t at, std::uint32_t node, lockcore::command_kind command,
                                std::uint64_t token);
    void settle(std::uint32_t at);
    void tell(const call& c, const call_answer& answer);
    microseconds local_time() const { return clock_.of(ctx_.now()); }
    std::uint64_t hint_for(resource_set set) const;
    void remember(resource_set set, std::uint64_t token);
    wake_mark mark() const { return incarnation_ * sim_gateways_max + index_ + 1; }

    // sim_attempts.cpp
    void perform(std::uint32_t at, lockcore::acquire::step step);
    void acquire_answered(std::uint32_t at, std::uint32_t node, lockcore::command_kind command, std::uint64_t token,
                          lockcore::node_reply r);
    void note_previous(attempt& a, std::uint32_t node, const lockcore::node_reply& r);
    void round_answered(std::uint32_t at, std::uint32_t node, lockcore::node_reply r);
    void count_probes(const attempt& a, std::uint64_t token_before, lockcore::command_kind command,
                      const lockcore::node_reply& r);
    void acquire_done(std::uint32_t at);
    void round_done(std::uint32_t at);
    void release_done(const call& c, const lockcore::majority_round& round, bool handed);
    void top_up(std::uint32_t at);
    void undo(std::uint32_t at);
    void release_previous(const attempt& a, std::uint32_t node);

    // sim_waiting.cpp
    void take(const call& c);
    void release(const call& c);
    /// What came of a try, whoever it was for.
    void finished(const call& c, ticket for_whom, const call_answer& answer);
    bool enter_again(const call& c, ticket for_whom, const lockcore::lease_record& own, bool instead_of_waiting,
                     milliseconds locked_for);
    void entered(std::uint32_t at);
    void not_entered(const attempt& a);
    void survey_done(std::uint32_t at);
    void take_hold_back(std::uint32_t at);
    void join_or_refuse(const call& c);
    void poll(ticket t);
    void leave(ticket t, bool granted);
    void let_head_look(std::uint32_t home, milliseconds pause);
    void given_back(resource_set set, bool others_wait);
    /// `hold` 0: all of its holds.
    void stop_top_ups(sim_nonce nonce, hold_number hold);

    context& ctx_;
    network& net_;
    checkers& check_;
    callers& clients_;
    std::vector<sim_node>& nodes_;
    std::uint32_t index_;
    drifting_clock clock_;
    bool runs_ = false;
    std::uint32_t incarnation_ = 0;
    sim_time paused_until_{0};
    std::vector<std::unique_ptr<sim_link>> links_;
    std::deque<attempt> attempts_;
    std::vector<std::uint32_t> free_;
    std::array<std::uint64_t, sim_resources_max> highest_{};  ///< By bucket.
    std::array<std::optional<lockcore::wait_queue>, sim_resources_max> queues_;
    std::map<ticket, waiter> waiters_;
    ticket last_ticket_ = 0;
};

}  // namespace sim
