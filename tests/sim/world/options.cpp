#include <sim/world/options.hpp>

#include <algorithm>

namespace sim {
namespace {

/// Returns a mean interval between `often` and eight times that in six of ten runs, otherwise zero.
sim_time draw_interval(random& r, microseconds often) {
    if (!r.chance(600)) return sim_time{0};
    return r.between(often, often * 8);
}

/// Returns whether nodes lose data several times during one lease.
bool often_forgets(const options& o) {
    return o.kind == profile::forgetful || o.kind == profile::recovering || o.kind == profile::repeats;
}

profile draw_profile(random& r) {
    constexpr profile drawn[] = {
        profile::everyday,        profile::everyday,       profile::everyday,     profile::everyday,
        profile::quiet,           profile::short_leases,   profile::short_leases, profile::forgetful,
        profile::shared_counters, profile::jumping_clocks,
    };
    return r.pick(drawn);
}

void draw_size(random& r, options& o) {
    constexpr std::uint32_t clusters[] = {1, 3, 3, 3, 3, 3, 5, 5, 5, 7};
    o.nodes = r.pick(clusters);
    o.gateways = 1 + r.below(sim_gateways_max);
    o.clients = 1 + r.below(sim_clients_max);
    o.resources = 1 + r.below(r.chance(500) ? 2 : sim_resources_max);
    o.hints = r.chance(600);
    if (o.kind == profile::shared_counters) {
        o.resources = 3 + r.below(3);
        o.clients = 3 + r.below(4);
        o.hints = r.chance(100);
        o.gateways = 2 + r.below(2);
        if (r.chance(700)) o.nodes = 3;
    }
    if (often_forgets(o)) {
        if (r.chance(700)) o.nodes = 3;
        o.resources = 1 + r.below(2);
        o.gateways = 2;
        o.clients = 3 + r.below(3);
    }
    o.buckets = o.kind == profile::shared_counters ? 2 : 1 + r.below(o.resources);
    for (auto& bucket : o.bucket_of)
        bucket = static_cast<std::uint8_t>(r.below(o.buckets));
    o.several_per_thousand = o.resources > 1 && r.chance(600) ? r.below(700) : 0;
    if (o.kind == profile::shared_counters) o.several_per_thousand = 300 + r.below(300);
}

void draw_times(random& r, options& o) {
    o.max_ttl = r.between(milliseconds{200}, milliseconds{1'500});
    const microseconds usual = o.max_ttl;
    // Long leases, so that nodes may lose data several times during one.
    if (often_forgets(o)) o.max_ttl = o.max_ttl * 3;
    o.ttl_low = r.chance(500) ? milliseconds{60} : o.max_ttl / 2;
    const microseconds far = usual / (r.chance(300) ? 60 : 400);
    o.delay_base = r.between(microseconds{50}, far);
    o.delay_more = r.between(microseconds{20}, far);
    o.slow_per_thousand = r.chance(600) ? 1 + r.below(r.chance(200) ? 40 : 6) : 0;
    o.slow = microseconds(o.max_ttl) * r.between(1, 150) / (r.chance(500) ? 1000 : 100);
    // Longer than a round trip and short compared with the ttl.
    const auto enough = std::chrono::ceil<milliseconds>(5 * (o.delay_base + o.delay_more));
    o.node_timeout = enough + r.between(milliseconds{1}, o.max_ttl / (r.chance(500) ? 20 : 4));
    o.node_dead_after = o.node_timeout * r.between(1, 10);
    const bool short_leases = o.kind == profile::short_leases;
    if (short_leases) {
        o.ttl_low = std::max(milliseconds{8}, o.max_ttl / 20);
        o.node_timeout = o.max_ttl * 2 + r.between(milliseconds{0}, o.max_ttl);
        o.node_dead_after = o.node_timeout * 2;
    }
    if (often_forgets(o) && r.chance(600)) {
        // One path is slow, all others are fast: a request on the slow path arrives after another client had the lease.
        o.ttl_low = o.max_ttl * 3 / 4;
        o.extra_delay[0][r.below(o.nodes)] = r.between(usual / 20, usual / 3);
        // Or all paths of one gateway: its answers come too late, and the request is repeated at another.
        if (o.kind == profile::recovering && r.chance(400)) o.extra_delay[0].fill(r.between(usual / 20, usual / 3));
    } else if (o.kind == profile::shared_counters && r.chance(600)) {
        // Every gateway has a slow path to one node: each uses another majority, and the counters differ.
        for (auto& ways : o.extra_delay)
            ways[r.below(o.nodes)] = r.between(microseconds(o.max_ttl) / 4, microseconds(o.max_ttl) * 2);
    } else if (short_leases || r.chance(350)) {
        // Some paths are about as slow as a lease is long: requests arrive after the lease has ended.
        const std::uint32_t often = 100 + r.below(600);
        const std::uint32_t gateways = r.chance(500) ? 1 : sim_gateways_max;
        for (std::uint32_t g = 0; g < gateways; ++g) {
            for (microseconds& way : o.extra_delay[g]) {
                if (r.chance(often)) way = r.between(microseconds{0}, microseconds(o.max_ttl));
            }
        }
    }
    // Most faults show themselves soon or never: many short runs find more in the same time than few long ones.
    o.faults_end = r.between(sim_time{200'000}, r.chance(150) ? sim_time{12'000'000} : sim_time{1'200'000});
}

/// Sets up runs in which nodes sync every write, until a command ends that or a restart with other settings loads an
/// older file.
void set_ends_of_sync(random& r, options& o) {
    o.mean_interval = {};
    o.mean_interval[static_cast<std::size_t>(fault::end_sync)] = r.between(sim_time{50'000}, sim_time{500'000});
    o.mean_interval[static_cast<std::size_t>(fault::crash_node)] = r.between(sim_time{50'000}, sim_time{500'000});
    o.always_synced = o.nodes;
    o.restart_keeps = o.restart_loses = 0;
    o.restart_rolls_back = 1;
    o.outage = r.between(microseconds{500}, microseconds{10'000});
    o.older_file_per_thousand = r.below(500);
}

/// Sets up runs in which nodes lose data about as fast as they get it back, and little else goes wrong.
void set_recovering(random& r, options& o) {
    const auto pauses = o.mean_interval[static_cast<std::size_t>(fault::pause_gateway)];
    o.mean_interval = {};
    o.mean_interval[static_cast<std::size_t>(fault::pause_gateway)] = pauses;
    constexpr fault losses[] = {fault::flush_node, fault::crash_node, fault::replace_data};
    for (const fault f : losses)
        o.mean_interval[static_cast<std::size_t>(f)] = draw_interval(r, microseconds(o.max_ttl) / 3);
    o.mean_interval[static_cast<std::size_t>(fault::flush_node)] =
        r.between(microseconds(o.max_ttl) / 5, microseconds(o.max_ttl) * 2);
    o.always_synced = 0;
    o.outage = r.between(microseconds{500}, microseconds{10'000});
}

/// Sets up runs in which PostgreSQL is replaced by an earlier state of it several times, and little else goes wrong.
void set_failovers(random& r, options& o) {
    o.faults_end = r.between(sim_time{500'000}, sim_time{4'000'000});
    o.watch_interval = r.between(milliseconds{50}, milliseconds{500});
    auto& replaced = o.mean_interval[static_cast<std::size_t>(fault::replace_database)];
    replaced = r.between(microseconds{100'000}, microseconds{1'500'000});
    // Not promised: a loss that no database knows of any more, so nodes do not sync every write (docs/protocol.md).
    o.mean_interval[static_cast<std::size_t>(fault::replace_data)] = sim_time{0};
    o.mean_interval[static_cast<std::size_t>(fault::end_sync)] = sim_time{0};
    o.always_synced = 0;
    o.outage = r.between(microseconds{1'000}, microseconds{300'000});
    if (r.chance(700)) o.nodes = 3;
    // A change meets some of the nodes, and the next change others.
    o.mean_interval[static_cast<std::size_t>(fault::block_path)] = r.between(sim_time{20'000}, sim_time{300'000});
    o.block = r.between(microseconds{50'000}, microseconds{800'000});
    o.mean_interval[static_cast<std::size_t>(fault::flush_node)] = r.between(sim_time{100'000}, sim_time{2'000'000});
    o.quarantined = r.chance(500);
    // A write to a server that was replaced is answered while the gateway looks for lost writes.
    o.slow_per_thousand = r.chance(500) ? 5 + r.below(60) : 0;
    o.slow = microseconds(o.watch_interval) * r.between(1, 30) / 10;
}

/// Sets up runs in which named owners repeat their requests at another gateway,
/// while paths of the first one are blocked and nodes lose data.
void set_repeats(random& r, options& o) {
    const auto mean_interval = [&o](fault f) -> sim_time& { return o.mean_interval[static_cast<std::size_t>(f)]; };
    // Many requests during one lease; a node gets its leases back long before the lease ends.
    o.max_ttl = r.between(milliseconds{250}, milliseconds{1'000});
    const microseconds ttl = o.max_ttl;
    o.delay_base = r.between(microseconds{50}, microseconds{500});
    o.delay_more = r.between(microseconds{50}, microseconds{500});
    o.slow_per_thousand = r.chance(600) ? 10 + r.below(100) : 0;
    o.slow = r.between(ttl / 40, ttl / 2);
    o.node_timeout = o.max_ttl / r.between(8, 25);
    o.node_dead_after = o.node_timeout * r.between(4, 40);
    o.answer_bound = o.node_timeout;
    o.ttl_low = o.node_timeout * 2;
    const microseconds late = o.node_timeout;
    o.extra_delay = {};
    if (r.chance(800)) o.answer_delay[0] = r.between(late * 3 / 4, late * 3 / 2);
    // Each gateway has a slow path to one node,
    // so that its requests arrive when another gateway has extended the lease.
    for (std::uint32_t g = 0; g < o.gateways; ++g) {
        if (r.chance(g == 0 ? 500 : 700))
            o.extra_delay[g][r.below(o.nodes)] = r.between(late / 2, microseconds(o.node_dead_after) / 3);
    }

    const auto pauses = mean_interval(fault::pause_gateway), cuts = mean_interval(fault::cut_connection);
    o.mean_interval = {};
    mean_interval(fault::pause_gateway) = pauses;
    mean_interval(fault::cut_connection) = cuts;
    mean_interval(fault::block_path) = r.between(ttl / 4, ttl * 2);
    if (r.chance(700)) mean_interval(fault::flush_node) = r.between(ttl, ttl * 4);
    o.flushed_after_repeat_per_thousand = r.chance(700) ? 200 + r.below(400) : 0;
    if (r.chance(400)) mean_interval(fault::crash_node) = r.between(ttl, ttl * 8);
    o.blocks_several = true;
    o.block = r.between(late / 2, ttl / 3);
    o.pause = r.between(late, ttl);
    o.always_synced = 0;
    o.outage = r.between(microseconds{500}, microseconds{10'000});
    o.faults_end = ttl * r.between(2, 8);

    o.resources = 1 + (r.chance(200) ? 1 : 0);
    o.buckets = 1;
    o.bucket_of = {};
    o.clients = 2 + r.below(3);
    // A lease often lasts longer than a node takes to get it back.
    o.think_time = r.between(microseconds(o.answer_bound) / 8, microseconds(o.answer_bound));
    o.freeze_time = ttl * r.between(1, 4) / 2;
    o.past_lease_per_thousand = r.below(200);
    o.other_ttl_per_thousand = 300 + r.below(701);
    o.ops_max = 20;
    o.owner_per_thousand = 1'000;
    o.keys_per_thousand = 900 + r.below(101);
    o.repeated_elsewhere_per_thousand = 500 + r.below(501);
    constexpr std::array<std::uint32_t, op_count> preferred = {5, 40, 10, 40, 10, 2, 80, 5, 8, 1};
    constexpr std::uint32_t times[] = {0, 1, 1, 3};
    for (std::size_t i = 0; i < op_count; ++i)
        o.op_weight[i] = preferred[i] * r.pick(times);
    o.op_weight[6] += 20;
    o.shares_owner = r.chance(500);
}

/// Sets up runs in which clients give up requests before, during and after the grant or the wait. A lease that remains
/// of one would stay for the rest of the run.
void set_cancellations(random& r, options& o) {
    const auto mean_interval = [&o](fault f) -> sim_time& { return o.mean_interval[static_cast<std::size_t>(f)]; };
    o.mean_interval = {};
    for (const fault f : {fault::cut_connection, fault::block_path, fault::pause_gateway})
        mean_interval(f) = draw_interval(r, milliseconds{100});
    o.max_ttl = std::chrono::minutes{1};
    o.ttl_low = o.max_ttl / 2;
    o.delay_base = r.between(microseconds{50}, microseconds{1'000});
    o.delay_more = r.between(microseconds{50}, microseconds{1'000});
    o.extra_delay = {};
    o.node_timeout = r.between(milliseconds{20}, milliseconds{100});
    o.node_dead_after = o.node_timeout * r.between(2, 10);
    o.answer_bound = o.node_timeout;
    const microseconds timeout = o.node_timeout;
    o.slow_per_thousand = r.below(60);
    o.slow = r.between(timeout / 2, timeout * 3);
    o.pause = o.block = r.between(timeout, timeout * 8);
    o.faults_end = r.between(sim_time{300'000}, sim_time{2'000'000});

    o.gateways = 2 + r.below(2);
    o.clients = 2 + r.below(4);
    o.resources = 1 + r.below(2);
    o.several_per_thousand = o.resources > 1 ? r.below(500) : 0;
    o.buckets = 1;
    o.bucket_of = {};
    o.renewals_max = 1'000;
    o.hold_max = std::chrono::hours{1};
    o.think_time = r.between(microseconds{500}, microseconds{10'000});
    o.freeze_per_thousand = o.past_lease_per_thousand = o.other_ttl_per_thousand = 0;
    o.owner_per_thousand = 0;
    o.keys_per_thousand = 1'000;
    o.waits_per_thousand = 300 + r.below(701);
    o.wait = r.between(timeout / 2, timeout * 4);
    o.repeated_elsewhere_per_thousand = 100 + r.below(600);
    o.op_weight = {20, 10, 5, 60};  // a lease that is not released would be in the way of all others
}

void draw_faults(random& r, options& o) {
    const bool is_short = o.kind == profile::short_leases;
    o.clocks_jump = o.kind == profile::jumping_clocks;
    o.quarantined = o.kind != profile::forgetful && !(o.clocks_jump && r.chance(500));
    const auto draw_fault = [&](fault f, microseconds often) {
        o.mean_interval[static_cast<std::size_t>(f)] = draw_interval(r, often);
    };
    if (o.kind != profile::quiet) {
        draw_fault(fault::cut_connection, milliseconds{200});
        draw_fault(fault::block_path, milliseconds{200});
        // A node that lost data is quarantined for max_ttl, and is inspected again only after an interval. Faults are
        // rare enough that not all nodes are out at once.
        const milliseconds recovery_time = o.quarantined ? o.max_ttl + milliseconds{1'000} : milliseconds{150};
        draw_fault(fault::crash_node, recovery_time * 2 / o.nodes);
        draw_fault(fault::flush_node, recovery_time * 2 / o.nodes);
        draw_fault(fault::replace_data, recovery_time * 2 / o.nodes);
        draw_fault(fault::end_sync, recovery_time / o.nodes);
        draw_fault(fault::pause_node, is_short ? milliseconds{60} : milliseconds{300});
        draw_fault(fault::pause_gateway, is_short ? milliseconds{60} : milliseconds{400});
        draw_fault(fault::crash_gateway, milliseconds{1'500});
        draw_fault(fault::close_register, milliseconds{800});
        if (o.clocks_jump)
            o.mean_interval[static_cast<std::size_t>(fault::jump_clock)] =
                r.between(sim_time{100'000}, sim_time{1'000'000});
    }
    const microseconds scale = is_short ? o.ttl_low * 4 : o.max_ttl;
    o.pause = r.between(microseconds{5'000}, scale * 3 / 2);
    o.block = r.between(microseconds{5'000}, scale);
    o.outage = r.between(microseconds{1'000}, microseconds{r.chance(500) ? 10'000 : 200'000});
    o.restart_keeps = r.below(4);
    o.restart_loses = r.below(4);
    o.restart_rolls_back = r.below(4);
    if (o.restart_keeps + o.restart_loses + o.restart_rolls_back == 0) o.restart_rolls_back = 1;
    o.always_synced = r.chance(400) ? r.below(o.nodes + 1) : 0;
    if (o.kind == profile::forgetful) {
        auto& flushes = o.mean_interval[static_cast<std::size_t>(fault::flush_node)];
        flushes = r.between(sim_time{200'000}, sim_time{1'000'000});
        if (r.chance(800)) o.mean_interval[static_cast<std::size_t>(fault::close_register)] = sim_time{0};
        if (r.chance(500)) {
            o.mean_interval[static_cast<std::size_t>(fault::crash_node)] = sim_time{0};
            flushes = r.between(sim_time{50'000}, sim_time{400'000});
            o.flushed_node = r.below(o.nodes);
        }
        o.restart_rolls_back += 2;
        o.outage = r.between(microseconds{500}, microseconds{10'000});
    }
    if (o.kind == profile::ends_of_sync) set_ends_of_sync(r, o);
    if (o.kind == profile::recovering) set_recovering(r, o);
    if (o.kind == profile::failovers) set_failovers(r, o);
    o.fsync_switched_per_thousand = r.chance(500) ? r.below(800) : 0;
    if (o.database_fails()) o.fsync_switched_per_thousand = 0;
    o.drift_ppm = r.chance(700) ? r.between(100, 4'000) : 0;
    if (o.kind == profile::drifting) {
        o.mean_interval = {};
        o.drift_ppm = 4'000;
    }
}

void draw_clients(random& r, options& o) {
    if (r.chance(200)) o.renewals_max = 1 + r.below(4);
    if (r.chance(150)) o.hold_max = o.max_ttl * r.between(1, 4);
    constexpr std::uint32_t handoffs[] = {0, 1, 3, 100};
    o.handoff_max = r.pick(handoffs);
    o.release_messages_lost_per_thousand = r.chance(500) ? r.below(500) : 0;
    o.owner_per_thousand = r.chance(600) ? r.below(1'001) : 0;
    o.waits_per_thousand = r.chance(600) ? r.below(1'001) : 0;
    o.keys_per_thousand = r.chance(300) ? r.below(1'000) : 0;
    if (o.kind == profile::recovering && r.chance(400)) o.keys_per_thousand = 500 + r.below(500);
    o.other_ttl_per_thousand = r.chance(500) ? r.below(1'000) : 0;
    o.think_time = r.between(microseconds{500}, microseconds{r.chance(300) ? 60'000 : 10'000});
    o.freeze_per_thousand = r.chance(600) ? r.below(100) : 0;
    o.freeze_time = microseconds(o.max_ttl) * r.between(1, 4) / 2;
    if (often_forgets(o)) o.think_time = r.between(microseconds{500}, microseconds{5'000});
    if (o.kind == profile::drifting) o.waits_per_thousand = 1'000;
    o.past_lease_per_thousand = r.chance(600) ? r.below(500) : 0;
    constexpr std::array<std::uint32_t, op_count> usual = {40, 22, 14, 12, 6, 2, 14, 10, 5, 2};
    constexpr std::uint32_t times[] = {0, 1, 1, 1, 4};
    for (std::size_t i = 0; i < op_count; ++i)
        o.op_weight[i] = usual[i] * r.pick(times);
    if (often_forgets(o) || o.kind == profile::short_leases) {
        o.past_lease_per_thousand = 200 + r.below(500);
        o.op_weight[1] += 20;
        o.op_weight[2] += 60;
        o.op_weight[4] += 10;
        o.op_weight[5] += 20;
    }
    if (o.database_fails()) {
        o.direct_per_thousand = r.below(1'001);
        o.op_weight[0] += 100;
    }
    o.op_weight[0] += 1;  // at least one operation has a weight
    o.answer_bound = r.between(o.node_timeout, std::max(o.node_timeout, o.max_ttl / (r.chance(500) ? 2 : 6)));
    if (o.kind == profile::recovering) o.answer_bound = std::min(o.answer_bound, o.max_ttl / 12);
    if (o.kind == profile::repeats) set_repeats(r, o);
    o.wait = o.max_ttl;
    if (o.cancels_requests()) set_cancellations(r, o);
}

/// Draws from a generator of its own,
/// so that the other seeds of `recovering` have the same events as without this fault.
void draw_replays(random r, options& o) {
    const std::uint32_t often = o.kind == profile::repeats ? 600 : o.kind == profile::recovering ? 300 : 0;
    if (r.chance(often)) o.replayed_per_thousand = 200 + r.below(801);
}

/// Draws from a generator of its own, as draw_replays does.
void draw_jumps(random r, options& o) {
    o.clocks_go_back = o.clocks_jump && r.chance(500);
}

/// Sets up runs with leases that share resources.
void set_shared_leases(random r, options& o) {
    o.shared_per_thousand = 300 + r.below(600);
    o.readers_continue = r.chance(500);
    o.clients = 3 + r.below(sim_clients_max - 2);
    o.resources = std::max(o.resources, 1 + r.below(3));
    if (r.chance(500)) {
        o.several_per_thousand = 0;
    } else if (o.resources > 1) {
        o.several_per_thousand = 200 + r.below(500);
    }
    if (r.chance(400)) set_recovering(r, o);
}

}  // namespace

options draw_options(std::uint64_t seed, const overrides& wanted) {
    random r(seed ^ 0x0f7104e5ULL);
    options o;
    o.seed = seed;
    o.active_mutation = wanted.active_mutation;
    o.kind = draw_profile(r);
    if (wanted.kind) o.kind = *wanted.kind;
    draw_size(r, o);
    if (wanted.nodes) o.nodes = *wanted.nodes;
    draw_times(r, o);
    draw_faults(r, o);
    draw_clients(r, o);
    draw_replays(random(seed ^ 0x5e9a11edULL), o);
    draw_jumps(random(seed ^ 0xbac4c10cULL), o);
    if (o.kind == profile::shared_leases) set_shared_leases(random(seed ^ 0x5a4ed00dULL), o);
    return o;
}

const char* to_string(profile p) {
    constexpr std::array<const char*, profile_count> names = {
        "everyday",   "quiet",    "short_leases", "forgetful", "shared_counters", "jumping_clocks", "ends_of_sync",
        "recovering", "drifting", "failovers",    "repeats",   "cancellations",   "shared_leases",
    };
    return names[static_cast<std::size_t>(p)];
}

std::optional<profile> find_profile(std::string_view name) {
    for (std::size_t p = 0; p < profile_count; ++p) {
        if (name == to_string(static_cast<profile>(p))) return static_cast<profile>(p);
    }
    return std::nullopt;
}

const char* to_string(fault f) {
    constexpr std::array<const char*, fault_count> names = {
        "cut",        "block",         "crash node",    "flush",    "replace data", "end sync",
        "pause node", "pause gateway", "crash gateway", "register", "clock",        "replace database",
    };
    return names[static_cast<std::size_t>(f)];
}

std::string describe(const options& o) {
    const auto ms = [](auto span) {
        const auto tenths = std::chrono::duration_cast<microseconds>(span).count() / 100;
        return std::to_string(tenths / 10) + (tenths % 10 ? "." + std::to_string(tenths % 10) : "") + " ms";
    };
    const auto n = [](std::uint64_t v) { return std::to_string(v); };
    std::string out =
        std::string(to_string(o.kind)) + ", " + n(o.nodes) + " nodes (" + n(o.always_synced) + " always synced), " +
        n(o.gateways) + " gateways, " + n(o.clients) + " clients, " + n(o.resources) + " resources in " + n(o.buckets) +
        " buckets, ttl " + ms(o.ttl_low) + " to " + ms(o.max_ttl) + ", node timeout " + ms(o.node_timeout) +
        ", dead after " + ms(o.node_dead_after) + ", D " + ms(o.answer_bound) + ", delay " + ms(o.delay_base) + " + " +
        ms(o.delay_more) + ", slow " + n(o.slow_per_thousand) + " per thousand by " + ms(o.slow) +
        ", restarts keep:lose:roll back " + n(o.restart_keeps) + ":" + n(o.restart_loses) + ":" +
        n(o.restart_rolls_back) + ", older file " + n(o.older_file_per_thousand) + " per thousand, drift " +
        std::to_string(o.drift_ppm) + " ppm" +
        (!o.clocks_jump     ? ""
         : o.clocks_go_back ? ", clocks go back"
                            : ", clocks jump") +
        (o.replayed_per_thousand == 0 ? "" : ", replayed " + n(o.replayed_per_thousand) + " per thousand") +
        (o.quarantined ? "" : ", no quarantine") + (o.hints ? "" : ", no hints") + "; faults every";
    for (std::size_t f = 0; f < fault_count; ++f) {
        if (o.mean_interval[f] != sim_time{0})
            out += std::string(" ") + to_string(static_cast<fault>(f)) + " " + ms(o.mean_interval[f]) + ",";
    }
    if (o.active_mutation != mutation::none) out += " mutated";
    if (out.back() == ',') out.pop_back();
    return out;
}

}  // namespace sim
