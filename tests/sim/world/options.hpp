#pragma once

#include <sim/world/event_queue.hpp>
#include <sim/world/mutations.hpp>
#include <sim/world/random.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace sim {

inline constexpr std::size_t sim_nodes_max = 7, sim_gateways_max = 3, sim_clients_max = 6, sim_resources_max = 5;

/// What can strike. Each is on or off for a whole run, and then strikes with a pace of its own.
enum class fault : std::uint8_t {
    cut_connection,
    block_path,  ///< Nothing gets from a gateway to a node, or back, for a while; it arrives afterwards.
    crash_node,
    flush_node,
    pause_node,
    pause_gateway,
    crash_gateway,
    close_register,
    jump_clock,
    count_,
};
inline constexpr std::size_t fault_count = static_cast<std::size_t>(fault::count_);
const char* to_string(fault f);

/// How this run is set up: drawn from the seed itself, so that every seed is another kind of world ("swarm").
struct options {
    std::uint64_t seed = 0;
    mutation broken = mutation::none;

    std::uint32_t nodes = 3, gateways = 1, clients = 1, resources = 1, buckets = 1;
    std::array<std::uint8_t, sim_resources_max> bucket_of{};

    milliseconds max_ttl{1'000}, ttl_low{100};
    milliseconds node_timeout{50}, node_dead_after{300};
    std::uint32_t renewals_max = 1'000;

    microseconds delay_base{200}, delay_more{500};
    std::uint32_t slow_per_thousand = 0;  ///< Messages that take long, and hold up what is behind them.
    microseconds slow{0};

    std::array<sim_time, fault_count> pace{};  ///< Mean time between two strikes; zero: never.
    microseconds pause{0}, block{0}, outage{0};
    std::uint32_t restart_keeps = 1, restart_loses = 1, restart_rolls_back = 1;  ///< Weights.
    std::uint32_t always_synced = 0;  ///< Nodes, from the first on, whose appendfsync is `always`.
    std::int64_t drift_ppm = 0;       ///< Clocks run at rates within 1 ± this.
    bool clocks_jump = false;         ///< Then exclusion is not promised.

    microseconds think{10'000}, freeze{0};
    std::uint32_t freeze_per_thousand = 0;
    std::uint32_t several_per_thousand = 0;  ///< Leases over more than one resource.
    sim_time faults_last{4'000'000};
};

options draw_options(std::uint64_t seed, std::optional<std::uint32_t> nodes, mutation broken);
/// One line for people.
std::string describe(const options& o);

}  // namespace sim
