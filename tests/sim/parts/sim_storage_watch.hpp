#pragma once

#include <gateway/audit/generation_steps.hpp>
#include <proto/core.hpp>
#include <sim/parts/epoch_register.hpp>

#include <functional>
#include <vector>

namespace sim {

/// Drives the product's generation_steps in a simulated gateway, as gateway/audit/storage_watch does in a gateway.
class sim_storage_watch final : fencegate::audit::generation_steps::ports {
  public:
    /// What it needs of its gateway.
    struct owner {
        std::uint32_t index = 0, incarnation = 0;
        std::function<const lockcore::core&()> core;
        std::function<void(lockcore::core_input)> step;
        std::function<microseconds(microseconds)> real;  ///< How long a time of the gateway's clock lasts.
    };
    static constexpr lockcore::call_id announcement{~std::uint64_t{0}};

    sim_storage_watch(context& ctx, database& db, epoch_register& epochs, gateway_sessions& sessions, owner gateway);

    void start() { perform(steps_.look()); }
    /// The present call reaches PostgreSQL.
    void asked(std::uint32_t serial);
    /// The present call is answered, or the wait is over.
    void answered(std::uint32_t serial);
    void on_announced(const lockcore::result<lockcore::floor_announcement>& announced);

    /// Returns whether the gateway passes on writes: as storage_watch::check.
    bool lets_in() const { return steps_.is_current(); }
    bool is_settled() const { return steps_.is_settled(); }
    void acknowledged(std::uint64_t write_id) { acknowledged_.push_back(write_id); }
    /// Returns whether every write that this gateway acknowledged is in the database or was reported as lost.
    bool knows_all_lost_writes() const;

  private:
    std::vector<lockcore::node_status> nodes() const override;
    void raise_hints(lockcore::epoch floor) override { gateway_.step(lockcore::input::raise_hints{floor}); }
    void renew_connections() override { sessions_.renew_all(); }
    void require_floor(lockcore::epoch floor) override { sessions_.require_floor(floor); }
    void report_lost(bool record) override;
    void report(notice what) override;

    void perform(fencegate::audit::generation_step::any next);
    void schedule(event_kind kind, microseconds span);

    context& ctx_;
    database& db_;
    epoch_register& epochs_;
    gateway_sessions& sessions_;
    owner gateway_;
    fencegate::audit::generation_steps steps_{*this, 2};
    fencegate::audit::generation_step::any present_;
    std::uint32_t serial_ = 0;
    /// Continues the steps with the answer of the present call.
    std::function<fencegate::audit::generation_step::any()> answer_;
    std::vector<std::uint64_t> acknowledged_, lost_;
};

}  // namespace sim
