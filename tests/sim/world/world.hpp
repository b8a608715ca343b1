#pragma once

#include <sim/check/checkers.hpp>
#include <sim/parts/sim_client.hpp>
#include <sim/parts/sim_gateway.hpp>

#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace sim {

/// What one seed came to.
struct outcome {
    options set;
    std::optional<violation> broken;
    std::uint64_t trace_hash = 0;
    std::uint64_t unseed =
        0;  ///< One more number of the generator: another one for the same seed is a fault of the simulation.
    std::uint64_t events = 0;
    probe_counts probes;
};

/// A whole cluster in one thread: nodes, gateways, clients, the register and the shop, first under faults, then healed.
class world final : public callers, public gateways {
  public:
    world(options set, bool prints, std::optional<checker> only);
    outcome run();

    bool waits_for(const call& c) const override;
    void answer(const call& c, const call_answer& a) override;
    void ask(std::uint32_t gateway, const call& c) override;
    void drop(std::uint32_t client) override;

  private:
    void happen(const event& e);
    /// True if the event was put off: its gateway is paused, or dropped, because it is dead.
    bool put_off(const event& e, std::uint32_t gateway);
    /// What was put off happens, unless the gateway is still paused.
    void resume(std::uint32_t gateway);
    void strike(fault f);
    void plan(fault f);
    void crash_node();
    void heal();
    void look_whether_well(bool may_wait);
    sim_time healing_lasts() const;

    context ctx_;
    checkers check_;
    std::vector<sim_node> nodes_;
    network net_;
    epoch_register epochs_;
    shop shop_;
    std::vector<std::unique_ptr<sim_gateway>> gateways_;
    std::vector<sim_client> clients_;  ///< Then, after healing, one more a resource.
    std::array<std::vector<event>, sim_gateways_max> parked_;
    std::vector<call> calls_;
    struct asked {
        std::uint32_t gateway = 0, at = 0;
    };
    std::map<std::uint32_t, asked> last_call_;  ///< Of each client.
    run_number runs_ = 0;
    microseconds jumps_{0};
    bool healed_ = false, ended_ = false;
};

outcome run_seed(std::uint64_t seed, const wishes& w = {}, bool prints = false);

}  // namespace sim
