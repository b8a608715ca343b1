#pragma once

#include <proto/acquire.hpp>
#include <proto/majority_round.hpp>
#include <sim/parts/calls.hpp>
#include <sim/parts/sim_link.hpp>

#include <memory>
#include <vector>

namespace sim {

/// A gateway, standing in for lockcore/runtime: drives the product's own state machines over simulated links as
/// attempt.cpp and shard.cpp do. It keeps nothing but the highest tokens it heard of, and may die at any moment.
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
    sim_link& link(std::uint32_t node) { return *links_[node]; }

    // For its links.
    /// `last`: no other answer to this request will come.
    void on_reply(const request& asked, std::uint32_t node, const lockcore::node_reply& told, bool last);
    std::uint64_t highest_epoch() const;
    std::uint32_t new_claim() { return static_cast<std::uint32_t>(ctx_.chance.next() >> 40) + 1; }

  private:
    struct attempt {
        attempt(const call& c, std::size_t nodes) : asked_for(c), taking(nodes), round(nodes) {}
        call asked_for;
        request built;
        lockcore::acquire taking;        ///< ACQUIRE
        lockcore::majority_round round;  ///< The others
        microseconds started{0};         ///< By the gateway's clock, before the first send.
        microseconds first_reply{0};
        checkers::floors before{};
        std::uint32_t awaited = 0;  ///< Requests that may still be answered.
        bool told = false;          ///< The client has its answer.
        bool complete = false, confirmed = false, undone = false;
        bool timed_out = false;
        bool clean = true;  ///< No connection broke: what was undone is undone.
        lockcore::node_set topped_up;
        std::array<run_number, sim_nodes_max> undone_in{};
        std::array<std::uint64_t, sim_nodes_max> stale_at{};  ///< Only with mutation::stale_counts.
        bool in_use = true;
    };

    std::uint32_t new_attempt(const call& c);
    void perform(std::uint32_t at, lockcore::acquire::step step);
    lockcore::reply_status send(std::uint32_t at, std::uint32_t node, lockcore::command_kind command,
                                std::uint64_t token);
    void acquire_answered(std::uint32_t at, std::uint32_t node, lockcore::command_kind command, std::uint64_t token,
                          lockcore::node_reply r);
    void round_answered(std::uint32_t at, std::uint32_t node, lockcore::node_reply r);
    void count_probes(const attempt& a, std::uint64_t token_before, lockcore::command_kind command,
                      const lockcore::node_reply& r);
    void acquire_done(attempt& a, std::uint32_t at);
    void round_done(attempt& a);
    void top_up(attempt& a, std::uint32_t at);
    void undo(attempt& a, std::uint32_t at);
    void settle(std::uint32_t at);
    void tell(attempt& a, const call_answer& answer);

    microseconds local_time() const { return clock_.of(ctx_.now()); }
    std::uint64_t hint_for(resource_set set) const;
    void remember(resource_set set, std::uint64_t token);

    context& ctx_;
    network& net_;
    checkers& check_;
    callers& clients_;
    std::vector<sim_node>& nodes_;
    std::uint32_t index_;
    drifting_clock clock_;
    bool runs_ = false;
    sim_time paused_until_{0};
    std::vector<std::unique_ptr<sim_link>> links_;
    std::vector<attempt> attempts_;
    std::vector<std::uint32_t> free_;
    std::array<std::uint64_t, sim_resources_max> highest_{};  ///< By bucket.
};

}  // namespace sim
