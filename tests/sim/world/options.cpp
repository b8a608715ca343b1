#include <sim/world/options.hpp>

#include <algorithm>

namespace sim {
namespace {

/// A pace between `often` and eight times as slow, in seven of ten runs that allow it.
sim_time draw_pace(random& r, milliseconds often) {
    if (!r.chance(600)) return sim_time{0};
    return r.between(sim_time(often), sim_time(often) * 8);
}

void draw_faults(random& r, options& o) {
    auto& p = o.pace;
    const auto set = [&](fault f, milliseconds often) { p[static_cast<std::size_t>(f)] = draw_pace(r, often); };
    set(fault::cut_connection, milliseconds{80});
    set(fault::block_path, milliseconds{120});
    // A node that forgot sits out for max_ttl: with all of them out nothing would be left to be seen.
    set(fault::crash_node, o.max_ttl / (r.chance(200) ? 4 : 1));
    set(fault::flush_node, o.max_ttl * 2 / (r.chance(200) ? 8 : 1));
    set(fault::pause_node, milliseconds{200});
    set(fault::pause_gateway, milliseconds{300});
    set(fault::crash_gateway, milliseconds{500});
    set(fault::close_register, milliseconds{300});
    o.clocks_jump = r.chance(80);
    p[static_cast<std::size_t>(fault::jump_clock)] =
        o.clocks_jump ? r.between(sim_time{100'000}, sim_time{1'000'000}) : sim_time{0};
    // A quiet world in a part of the runs: rare interleavings of healthy parts deserve seeds too.
    if (r.chance(100)) p.fill(sim_time{0});

    o.pause = r.between(microseconds{5'000}, microseconds(o.max_ttl) * 3 / 2);
    o.block = r.between(microseconds{5'000}, microseconds(o.max_ttl));
    o.outage = r.between(microseconds{1'000}, microseconds{600'000});
    o.restart_keeps = r.below(4);
    o.restart_loses = r.below(4);
    o.restart_rolls_back = r.below(4);
    if (o.restart_keeps + o.restart_loses + o.restart_rolls_back == 0) o.restart_rolls_back = 1;
    o.always_synced = r.chance(250) ? r.below(o.nodes + 1) : 0;
    o.drift_ppm = r.chance(700) ? r.between(100, 4'000) : 0;
}

}  // namespace

options draw_options(std::uint64_t seed, std::optional<std::uint32_t> nodes, mutation broken) {
    random r(seed ^ 0x0f7104e5ULL);
    options o;
    o.seed = seed;
    o.broken = broken;
    constexpr std::uint32_t clusters[] = {1, 3, 3, 3, 3, 5, 5, 5, 7};
    o.nodes = r.pick(clusters);
    if (nodes) o.nodes = *nodes;
    o.gateways = 1 + r.below(sim_gateways_max);
    o.clients = 1 + r.below(sim_clients_max);
    o.resources = 1 + r.below(r.chance(500) ? 2 : sim_resources_max);
    o.buckets = 1 + r.below(o.resources);
    for (auto& bucket : o.bucket_of)
        bucket = static_cast<std::uint8_t>(r.below(o.buckets));

    o.max_ttl = r.between(milliseconds{200}, milliseconds{1'500});
    o.ttl_low = r.chance(500) ? milliseconds{60} : o.max_ttl / 2;
    if (r.chance(200)) o.renewals_max = 1 + r.below(4);

    const microseconds far = microseconds(o.max_ttl) / (r.chance(300) ? 60 : 400);
    o.delay_base = r.between(microseconds{50}, far);
    o.delay_more = r.between(microseconds{20}, far);
    // Enough for there and back, and small against the ttl.
    const auto enough = std::chrono::ceil<milliseconds>(5 * (o.delay_base + o.delay_more));
    o.node_timeout = enough + r.between(milliseconds{1}, o.max_ttl / (r.chance(500) ? 20 : 4));
    o.node_dead_after = o.node_timeout * r.between(1, 10);
    o.slow_per_thousand = r.chance(600) ? 1 + r.below(60) : 0;
    o.slow = r.between(microseconds{2'000}, microseconds(o.max_ttl) * 3 / 2);
    draw_faults(r, o);

    o.think = r.between(microseconds{500}, microseconds{r.chance(300) ? 60'000 : 10'000});
    o.freeze_per_thousand = r.chance(600) ? r.below(100) : 0;
    o.freeze = microseconds(o.max_ttl) * r.between(1, 4) / 2;
    o.several_per_thousand = o.resources > 1 && r.chance(600) ? r.below(700) : 0;
    o.faults_last = r.between(sim_time{1'000'000}, sim_time{5'000'000});
    return o;
}

const char* to_string(fault f) {
    constexpr std::array<const char*, fault_count> names = {
        "cut", "block", "crash node", "flush", "pause node", "pause gateway", "crash gateway", "register", "clock",
    };
    return names[static_cast<std::size_t>(f)];
}

std::string describe(const options& o) {
    const auto ms = [](auto span) {
        const auto tenths = std::chrono::duration_cast<microseconds>(span).count() / 100;
        return std::to_string(tenths / 10) + (tenths % 10 ? "." + std::to_string(tenths % 10) : "") + " ms";
    };
    const auto n = [](std::uint64_t v) { return std::to_string(v); };
    std::string out = n(o.nodes) + " nodes (" + n(o.always_synced) + " always synced), " + n(o.gateways) +
                      " gateways, " + n(o.clients) + " clients, " + n(o.resources) + " resources in " + n(o.buckets) +
                      " buckets, ttl " + ms(o.ttl_low) + " to " + ms(o.max_ttl) + ", node timeout " +
                      ms(o.node_timeout) + ", dead after " + ms(o.node_dead_after) + ", delay " + ms(o.delay_base) +
                      " + " + ms(o.delay_more) + ", slow " + n(o.slow_per_thousand) + " per thousand by " + ms(o.slow) +
                      ", restarts keep:lose:roll back " + n(o.restart_keeps) + ":" + n(o.restart_loses) + ":" +
                      n(o.restart_rolls_back) + ", drift " + std::to_string(o.drift_ppm) + " ppm" +
                      (o.clocks_jump ? ", clocks jump" : "") + "; faults every";
    for (std::size_t f = 0; f < fault_count; ++f) {
        if (o.pace[f] != sim_time{0})
            out += std::string(" ") + to_string(static_cast<fault>(f)) + " " + ms(o.pace[f]) + ",";
    }
    if (o.broken != mutation::none) out += " mutated";
    if (out.back() == ',') out.pop_back();
    return out;
}

}  // namespace sim
