#pragma once

#include <sim/check/checkers.hpp>
#include <sim/parts/sim_client.hpp>
#include <sim/parts/sim_gateway.hpp>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace sim {

/// The result of one run.
struct outcome {
    options config;
    std::optional<violation> broken_promise;
    std::uint64_t trace_hash = 0;
    /// One more number of the generator after the run. If two runs of a seed differ in it, the simulation has a fault.
    std::uint64_t unseed = 0;
    std::uint64_t events = 0;
    probe_counts probes;
};

/// Simulates a whole cluster in one thread: nodes, gateways, clients, the register and the shop; first with faults,
/// then without them.
class world final : public client_interface, public gateway_interface {
  public:
    world(options config, bool prints, std::optional<checker> only);
    outcome run();

    void answer(const call& c, lockcore::call_result result) override;
    void ask(std::uint32_t gateway, call c) override;
    void cancel_call(std::uint32_t client) override;
    void request_cancelled(const lockcore::acquire_request& request, bool everywhere) override;
    void visit_shop(shop::visit v) override;

  private:
    void dispatch_event(const event& e);
    /// Defers the event if its gateway is paused, and discards it if the gateway has crashed.
    /// Out: true in both cases.
    bool defer_event(const event& e, std::uint32_t gateway);
    /// Schedules the deferred events of the gateway, unless it is still paused.
    void resume(std::uint32_t gateway);
    void inject_fault(fault f);
    void schedule_fault(fault f);
    void crash_node();
    void crash_node(std::uint32_t n, sim_node::restart kind);
    void replace_database();
    /// Returns whether so many nodes have lost their data and are not admitted again
    /// that no other one may: a majority that forgets the floor of a change is not promised (docs/protocol.md,
    /// "Not promised").
    bool may_forget(std::uint32_t node) const;
    void ask_shop(const event& e);
    void answer_shop(const event& e);
    /// New connections of this gateway, or client after the gateways, reach the newest server,
    /// or during the faults also an older one.
    void change_route(std::uint32_t caller);
    /// Reports a lease of a cancelled request that a majority of the nodes has.
    void check_cancelled(const lockcore::acquire_request& request);
    void heal();
    /// Reports resources that nobody was granted, unless another check follows (`may_wait`).
    void check_healed(bool may_wait);
    sim_time healing_bound() const;

    context ctx_;
    checkers check_;
    network::node_list nodes_;
    network net_;
    database db_;
    std::vector<gateway_sessions> sessions_;
    epoch_register epochs_;
    shop shop_;
    std::vector<std::unique_ptr<sim_gateway>> gateways_;
    std::vector<sim_client> clients_;  ///< During healing, one more client per resource is added.
    std::array<std::vector<event>, sim_gateways_max> deferred_;
    std::deque<call> calls_;
    std::vector<lockcore::acquire_request> cancelled_;
    struct placed_call {
        std::uint32_t gateway = 0, index = 0;
    };
    std::map<std::uint32_t, placed_call> last_call_;  ///< The last call of each client.
    run_number runs_ = 0;
    bool healed_ = false, ended_ = false;
};

outcome run_seed(std::uint64_t seed, const overrides& wanted = {}, bool prints = false);

}  // namespace sim
