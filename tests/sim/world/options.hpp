#pragma once

#include <sim/world/event_queue.hpp>
#include <sim/world/mutations.hpp>
#include <sim/world/random.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sim {

inline constexpr std::size_t sim_nodes_max = 7, sim_gateways_max = 3, sim_clients_max = 6, sim_resources_max = 5;

/// What can strike. Each is on or off for a whole run, and then strikes with a pace of its own.
enum class fault : std::uint8_t {
    cut_connection,
    block_path,  ///< Nothing gets from a gateway to a node, or back, for a while; it arrives afterwards.
    crash_node,
    flush_node,
    replace_data,  ///< REPLICAOF, DEBUG RELOAD, eviction: older data within one life.
    end_sync,      ///< CONFIG SET appendonly no.
    pause_node,
    pause_gateway,
    crash_gateway,
    close_register,
    jump_clock,
    count_,
};
inline constexpr std::size_t fault_count = static_cast<std::size_t>(fault::count_);
const char* to_string(fault f);

/// Which kind of trouble a run is about. Each draws its own mixture; the rare paths of one would drown in another.
enum class profile : std::uint8_t {
    everyday,
    quiet,            ///< No faults: rare interleavings of healthy parts.
    short_leases,     ///< Leases shorter than an attempt may take, and ways as long as a lease.
    forgetful,        ///< Nodes that forget often and are let in at once: only tokens are promised.
    shared_counters,  ///< Many resources in two buckets, leases over several, no hints.
    jumping_clocks,   ///< Only tokens are promised.
    // Never drawn: worlds for what the others reach seldom.
    ends_of_sync,  ///< Nodes sync every write until that is ended by a command, and then crash.
    drifting,      ///< Clocks as far apart as is allowed, and callers that wait for the last moment of a lease.
    count_,
};
inline constexpr std::size_t profile_count = static_cast<std::size_t>(profile::count_);
const char* to_string(profile p);
std::optional<profile> find_profile(std::string_view name);

inline constexpr std::size_t op_count = 8;  ///< What a client may do with a lease.

/// How this run is set up: drawn from the seed itself, so that every seed is another kind of world ("swarm").
struct options {
    std::uint64_t seed = 0;
    mutation broken = mutation::none;
    profile about = profile::everyday;

    std::uint32_t nodes = 3, gateways = 1, clients = 1, resources = 1, buckets = 1;
    std::array<std::uint8_t, sim_resources_max> bucket_of{};

    milliseconds max_ttl{1'000}, ttl_low{100};
    milliseconds node_timeout{50}, node_dead_after{300};
    std::uint32_t renewals_max = 1'000;
    milliseconds hold_max{3'600'000};
    std::uint32_t handoff_max = 8;
    std::uint32_t wakes_lost_per_thousand = 0;

    microseconds delay_base{200}, delay_more{500};
    std::uint32_t slow_per_thousand = 0;  ///< Messages that take long, and hold up what is behind them.
    microseconds slow{0};

    std::array<sim_time, fault_count> pace{};  ///< Mean time between two strikes; zero: never.
    microseconds pause{0}, block{0}, outage{0};
    std::uint32_t restart_keeps = 1, restart_loses = 1, restart_rolls_back = 1;  ///< Weights.
    std::optional<std::uint32_t> forgets;                                        ///< Only this node is ever flushed.
    std::uint32_t always_synced = 0;                ///< Nodes, from the first on, whose appendfsync is `always`.
    std::uint32_t fsync_switched_per_thousand = 0;  ///< Nodes that come back with `always` after they lost something.
    std::int64_t drift_ppm = 0;                     ///< Clocks run at rates within 1 ± this.
    bool clocks_jump = false, quarantined = true;
    bool hints = true;  ///< Gateways remember the highest tokens they heard of.
    std::array<std::array<microseconds, sim_nodes_max>, sim_gateways_max> detour{};  ///< A longer way, both ways.

    /// Tokens always are.
    bool exclusion_promised() const { return !clocks_jump && quarantined; }

    microseconds think{10'000}, freeze{0};
    std::uint32_t freeze_per_thousand = 0;
    std::uint32_t named_per_thousand = 0;  ///< Clients that name an owner, and so may enter their lease again.
    std::uint32_t waits_per_thousand = 0;
    std::uint32_t keys_per_thousand = 0;  ///< Requests with an idempotency key, repeated when nothing was answered.
    std::uint32_t other_ttl_per_thousand = 0;  ///< Renewals with another ttl than the lease has.
    std::uint32_t several_per_thousand = 0;    ///< Leases over more than one resource.
    std::array<std::uint32_t, op_count> op_weight{};
    std::uint32_t ghosts_per_thousand = 0;  ///< A client that asks once more for a lease that it had before.
    sim_time faults_last{4'000'000};
};

/// What the caller insists on, whatever the seed says.
struct wishes {
    mutation broken = mutation::none;
    std::optional<checker> only = {};  ///< Others' findings are passed over.
    std::optional<profile> about = {};
    std::optional<std::uint32_t> nodes = {};
};
options draw_options(std::uint64_t seed, const wishes& w);
/// One line for people.
std::string describe(const options& o);

}  // namespace sim
