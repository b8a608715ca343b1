// The simulation as a program: runs seeds and prints the command that repeats a failing one.
#include <sim/redis/script_engine.hpp>
#include <sim/world/world.hpp>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

namespace {

constexpr const char* usage_text =
    R"(usage: sim [--seed N | --seeds A..B] [--for SECONDS] [--from N] [--nodes N] [--profile NAME]
           [--mutate NAME [--any-checker]] [--scripts FOLDER] [--checker NAME] [--trace] [--probe-report]
  --seed N         run one seed and print its result
  --seeds A..B     run these seeds; default 1..1000
  --for SECONDS    run as many seeds as the time allows, of --seeds if they are given, else from --from on (default 1)
  --nodes N        simulate N nodes instead of the number drawn from the seed
  --profile NAME   everyday, quiet, short_leases, forgetful, shared_counters, jumping_clocks,
                   ends_of_sync, recovering, drifting, failovers, repeats, cancellations or shared_leases
  --mutate NAME    leave out one rule; ends with success once its checker has found a violation; 'list' prints all
  --any-checker    with --mutate: count the violations of every checker
  --scripts FOLDER use the Lua files of this folder instead of the built-in ones
  --checker NAME   look only for violations of this checker (C1 to C12)
  --trace          print every event
  --probe-report   print how often each rare path was taken
Exit codes: 0 no violation (with --mutate: one was found), 1 otherwise, 64 wrong arguments.
)";

struct arguments {
    std::uint64_t first = 1, last = 1'000;
    double seconds = 0;  // 0: as long as it takes
    bool has_last = false;
    sim::overrides wanted;
    const sim::mutation_row* mutation = nullptr;
    bool any_checker = false, trace = false, probe_report = false, single = false, list = false;
};

bool number(std::string_view text, std::uint64_t& out) {
    const auto r = std::from_chars(text.data(), text.data() + text.size(), out);
    return r.ec == std::errc{} && r.ptr == text.data() + text.size();
}

bool parse(int count, char** words, arguments& a) {
    for (int i = 1; i < count; ++i) {
        const std::string_view word = words[i];
        const auto value = [&]() -> std::string_view { return i + 1 < count ? words[++i] : ""; };
        std::uint64_t n = 0;
        if (word == "--trace") {
            a.trace = true;
        } else if (word == "--probe-report") {
            a.probe_report = true;
        } else if (word == "--any-checker") {
            a.any_checker = true;
        } else if (word == "--seed") {
            if (!number(value(), a.first)) return false;
            a.last = a.first;
            a.has_last = true;
            a.single = true;
        } else if (word == "--seeds") {
            const std::string_view range = value();
            const auto dots = range.find("..");
            if (dots == std::string_view::npos || !number(range.substr(0, dots), a.first) ||
                !number(range.substr(dots + 2), a.last))
                return false;
            a.has_last = true;
        } else if (word == "--from") {
            if (!number(value(), a.first)) return false;
        } else if (word == "--for") {
            if (!number(value(), n)) return false;
            a.seconds = static_cast<double>(n);
        } else if (word == "--nodes") {
            if (!number(value(), n) || n % 2 == 0 || n > sim::sim_nodes_max) return false;
            a.wanted.nodes = static_cast<std::uint32_t>(n);
        } else if (word == "--profile") {
            a.wanted.kind = sim::find_profile(value());
            if (!a.wanted.kind) return false;
        } else if (word == "--scripts") {
            const std::string folder(value());
            if (!sim::script_engine::instance().load_folder(folder)) {
                std::fprintf(stderr, "sim: --scripts: no script of the product is in %s\n", folder.c_str());
                return false;
            }
        } else if (word == "--checker") {
            a.wanted.only_checker = sim::find_checker(value());
            if (!a.wanted.only_checker) return false;
        } else if (word == "--mutate") {
            const std::string_view name = value();
            a.list = name == "list";
            a.mutation = sim::find_mutation(name);
            if (!a.mutation && !a.list) return false;
        } else {
            return false;
        }
    }
    return true;
}

void print_outcome(const sim::outcome& o) {
    std::printf("seed %llu: %s\n  %llu events, trace %016llx, unseed %016llx\n",
                static_cast<unsigned long long>(o.config.seed), sim::describe(o.config).c_str(),
                static_cast<unsigned long long>(o.events), static_cast<unsigned long long>(o.trace_hash),
                static_cast<unsigned long long>(o.unseed));
}

void print_violation(const sim::outcome& o, const arguments& a) {
    std::printf("VIOLATION of %s after %.3f ms: %s\n", sim::to_string(o.broken_promise->found_by),
                static_cast<double>(o.broken_promise->at.count()) / 1'000.0, o.broken_promise->text.c_str());
    std::string rerun = "sim --seed " + std::to_string(o.config.seed);
    if (a.wanted.nodes) rerun += " --nodes " + std::to_string(*a.wanted.nodes);
    if (a.wanted.kind) rerun += std::string(" --profile ") + sim::to_string(*a.wanted.kind);
    if (a.mutation) rerun += std::string(" --mutate ") + a.mutation->name;
    if (a.any_checker) rerun += " --any-checker";
    std::printf("repeat with: %s --trace\n", rerun.c_str());
    print_outcome(o);
}

}  // namespace

int main(int count, char** words) {
    arguments a;
    if (!parse(count, words, a)) {
        std::fputs(usage_text, stderr);
        return 64;
    }
    if (a.list) {
        for (const sim::mutation_row& row : sim::mutations())
            std::printf("%-24s %-14s leaves out %s\n", row.name, sim::to_string(row.caught_by), row.left_out);
        return 0;
    }
    const auto began = std::chrono::steady_clock::now();
    const auto elapsed = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    };
    sim::probe_counts probes;
    std::uint64_t seeds = 0, events = 0;
    bool found = false;
    if (a.mutation) {
        a.wanted.active_mutation = a.mutation->id;
        if (!a.any_checker) a.wanted.only_checker = a.mutation->caught_by;
    }
    const bool is_endless = a.seconds > 0 && !a.has_last;
    for (std::uint64_t seed = a.first;
         !found && (is_endless || seed <= a.last) && (a.seconds == 0 || elapsed() < a.seconds); ++seed) {
        const sim::outcome o = sim::run_seed(seed, a.wanted, a.trace);
        ++seeds;
        events += o.events;
        probes.add(o.probes);
        found = o.broken_promise.has_value();
        if (found) {
            print_violation(o, a);
        } else if (a.single) {
            print_outcome(o);
        }
    }
    if (a.probe_report) {
        for (const auto& [path, times] : probes.list())
            std::printf("%-36s %llu\n", path.c_str(), static_cast<unsigned long long>(times));
    }
    const double took = elapsed();
    std::printf("%llu seeds in %.1f s (%.0f a second), %llu events; %s\n", static_cast<unsigned long long>(seeds), took,
                static_cast<double>(seeds) / took, static_cast<unsigned long long>(events),
                found ? "a promise was broken" : "no promise was broken");
    return found == (a.mutation != nullptr) ? 0 : 1;
}
