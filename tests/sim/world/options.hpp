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

/// The faults that a run injects. Each is on or off for a whole run and, if on, has a mean interval of its own.
enum class fault : std::uint8_t {
    cut_connection,
    block_path,  ///< Delays everything from a gateway to a node, or back, until the block ends.
    crash_node,
    flush_node,
    replace_data,  ///< DEBUG RELOAD, eviction: older data without a restart.
    end_sync,      ///< CONFIG SET appendonly no.
    pause_node,
    pause_gateway,
    crash_gateway,
    close_register,
    jump_clock,
    replace_database,  ///< A promotion, a loaded dump or a snapshot that was put back.
    count_,
};
inline constexpr std::size_t fault_count = static_cast<std::size_t>(fault::count_);
const char* to_string(fault f);

/// The kind of a run: each profile draws its own mixture of sizes, times and faults, so that rare paths are reached.
enum class profile : std::uint8_t {
    everyday,
    quiet,            ///< No faults: rare interleavings without them.
    short_leases,     ///< Leases shorter than an attempt may take, and delays as long as a lease.
    forgetful,        ///< Nodes that often lose data and vote again at once: only tokens are promised.
    shared_counters,  ///< Many resources in two buckets, leases on several of them, no hints.
    jumping_clocks,   ///< Exclusion is promised while clocks are only set back.
    // No seed draws these; they reach what the others seldom reach.
    ends_of_sync,   ///< Nodes sync every write until a command ends that, and then crash, or load an older file.
    recovering,     ///< Nodes that lose data one after the other and get the leases of the others, with late requests.
    drifting,       ///< Clocks as far apart as is allowed, and callers that use a lease to its end.
    failovers,      ///< PostgreSQL is replaced by earlier states of it, again and again.
    repeats,        ///< Requests repeated at another gateway while the first attempt or its undo is under way.
    cancellations,  ///< Requests that are given up and cancelled by their key, for leases far longer than a run.
    shared_leases,  ///< Leases that share resources, beside others; with the faults of every day or of `recovering`.
    count_,
};
inline constexpr std::size_t profile_count = static_cast<std::size_t>(profile::count_);
const char* to_string(profile p);
std::optional<profile> find_profile(std::string_view name);

inline constexpr std::size_t op_count = 10;  ///< The number of operations of a client, sim_client::ops.

/// The configuration of a run. It is drawn from the seed, so that every seed is another kind of world
/// ("swarm testing").
struct options {
    std::uint64_t seed = 0;
    mutation active_mutation = mutation::none;
    profile kind = profile::everyday;

    std::uint32_t nodes = 3, gateways = 1, clients = 1, resources = 1, buckets = 1;
    std::array<std::uint8_t, sim_resources_max> bucket_of{};

    milliseconds max_ttl{1'000}, ttl_low{100};
    milliseconds node_timeout{50}, node_dead_after{300};
    milliseconds answer_bound{500};  ///< D of docs/protocol.md, FAST READMISSION.
    std::uint32_t renewals_max = 1'000;
    milliseconds hold_max{3'600'000};
    std::uint32_t handoff_max = 8;
    std::uint32_t release_messages_lost_per_thousand = 0;

    microseconds delay_base{200}, delay_more{500};
    std::uint32_t slow_per_thousand = 0;  ///< Messages with a long delay, which also delay those behind them.
    microseconds slow{0};

    std::array<sim_time, fault_count> mean_interval{};  ///< Mean time between two faults of a class; zero: never.
    microseconds pause{0}, block{0}, outage{0};
    bool blocks_several = false;              ///< A block is of the paths from one gateway to several nodes.
    std::uint32_t replayed_per_thousand = 0;  ///< Connections whose requests in flight a later process executes.
    std::uint32_t restart_keeps = 1, restart_loses = 1, restart_rolls_back = 1;  ///< Weights.
    std::uint32_t older_file_per_thousand = 0;  ///< Restarts of nodes that sync every write which load an older file.
    std::uint32_t flushed_after_repeat_per_thousand = 0;
    std::optional<std::uint32_t> flushed_node;      ///< The only node that is ever flushed; none: any node.
    std::uint32_t always_synced = 0;                ///< How many nodes, from the first on, have appendfsync `always`.
    std::uint32_t fsync_switched_per_thousand = 0;  ///< Restarts with lost data that set appendfsync to `always`.
    std::int64_t drift_ppm = 0;                     ///< Clocks differ from real time by at most this rate.
    bool clocks_jump = false, quarantined = true;
    bool clocks_go_back = false;  ///< The jumps of clocks are all back, and far.
    bool hints = true;            ///< Gateways send the highest token that they observed as a hint.
    std::array<std::array<microseconds, sim_nodes_max>, sim_gateways_max> extra_delay{};  ///< Added in both directions.

    std::array<microseconds, sim_gateways_max> answer_delay{};  ///< Added to the answers that a gateway gets.

    /// Returns whether exclusion is promised in this run; tokens always are.
    bool exclusion_promised() const { return (!clocks_jump || clocks_go_back) && quarantined; }
    /// Returns whether PostgreSQL is replaced in this run.
    bool database_fails() const { return kind == profile::failovers; }
    /// Returns whether clients cancel the requests that they give up.
    bool cancels_requests() const { return kind == profile::cancellations; }

    microseconds think_time{10'000}, freeze_time{0};
    std::uint32_t ops_max = 7;  ///< Operations with one lease.
    std::uint32_t freeze_per_thousand = 0;
    std::uint32_t owner_per_thousand = 0;  ///< Clients that name an owner and so may acquire their lease again.
    /// The first two clients name the same owner, and so share their leases; they sell nothing.
    bool shares_owner = false;
    std::uint32_t waits_per_thousand = 0;
    microseconds wait{0};                 ///< The mean time for which a client waits.
    std::uint32_t keys_per_thousand = 0;  ///< Requests with an idempotency key, repeated when they got no answer.
    std::uint32_t repeated_elsewhere_per_thousand = 0;  ///< Of these, repeated at once at another gateway.
    std::uint32_t other_ttl_per_thousand = 0;           ///< Renewals with another ttl than that of the lease.
    std::uint32_t several_per_thousand = 0;             ///< Leases on more than one resource.
    std::uint32_t shared_per_thousand = 0;              ///< Resources of a lease that it shares.
    bool readers_continue = false;                      ///< After the faults end clients go on to share resources.
    std::array<std::uint32_t, op_count> op_weight{};
    std::uint32_t direct_per_thousand = 1'000;  ///< Clients with a connection of their own to PostgreSQL.
    milliseconds watch_interval{1'000};         ///< Between two comparisons of the storage generation.
    std::uint32_t past_lease_per_thousand = 0;  ///< Clients that use an earlier lease again.
    sim_time faults_end{4'000'000};
};

/// Settings that replace those drawn from the seed.
struct overrides {
    mutation active_mutation = mutation::none;
    std::optional<checker> only_checker = {};  ///< Findings of other checkers are ignored.
    std::optional<profile> kind = {};
    std::optional<std::uint32_t> nodes = {};
};
options draw_options(std::uint64_t seed, const overrides& wanted);
/// Returns the configuration as one line of text.
std::string describe(const options& o);

}  // namespace sim
