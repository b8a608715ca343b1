#include <gateway/bench/counts.hpp>

#include <algorithm>
#include <cstdio>

namespace fencegate::bench {
namespace {

std::string format_fixed(double value, int digits) {
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
}

std::string_view name_of(bench_work work) {
    return bench_works.at(static_cast<std::size_t>(work));
}

std::string_view name_of(bench_step step) {
    constexpr std::array<std::string_view, 3> names{"acquire", "write", "release"};
    return names.at(static_cast<std::size_t>(step));
}

double percentile_ms(const std::vector<std::uint32_t>& sorted_us, double share) {
    if (sorted_us.empty()) return 0;
    const auto at = static_cast<std::size_t>(share * static_cast<double>(sorted_us.size()));
    return sorted_us[std::min(at, sorted_us.size() - 1)] / 1000.0;
}

struct percentile {
    const char* name;
    double share;
};
constexpr std::array<percentile, 5> percentiles{{{"p50", .5}, {"p90", .9}, {"p99", .99}, {"p999", .999}, {"max", 1}}};

}  // namespace

void bench_counts::end() {
    ended_ = bench_clock::now();
    for (auto& [work, latencies] : latencies_us_)
        std::ranges::sort(latencies);
}

void bench_counts::add_operation(bench_work work, bench_clock::duration took) {
    if (began_ == bench_clock::time_point{} || ended_ != bench_clock::time_point{}) return;
    ++operations_;
    latencies_us_[work].push_back(
        static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::microseconds>(took).count()));
}

void bench_counts::add_answer(bench_step step, unsigned status, bool expected) {
    ++statuses_[step][status];
    if (!expected) ++errors_;
}

void bench_counts::add_grant(const std::string& resource, std::int64_t token, bench_clock::time_point until) {
    const auto now = bench_clock::now();
    if (now >= until) return;
    grant& last = last_grants_[resource];
    if (token <= last.token) ++tokens_fallen_;
    if (now < last.until) ++overlaps_;
    last = {token, until};
}

std::string bench_counts::json() const {
    const auto rate = [this](std::size_t count) { return format_fixed(static_cast<double>(count) / seconds(), 1); };
    std::string out = "\"seconds\":" + format_fixed(seconds(), 2) + ",\"operations\":" + std::to_string(operations_) +
                      ",\"operations_per_s\":" + rate(operations_) + ",\"work\":{";
    for (const char* separator = ""; const auto& [work, latencies] : latencies_us_) {
        out.append(separator).append("\"").append(name_of(work)) +=
            "\":{\"operations\":" + std::to_string(latencies.size()) + ",\"per_s\":" + rate(latencies.size());
        for (const auto& [name, share] : percentiles)
            out.append(",\"").append(name) += "_ms\":" + format_fixed(percentile_ms(latencies, share), 3);
        out += "}";
        separator = ",";
    }
    out += "},\"errors\":" + std::to_string(errors_) + ",\"overlaps\":" + std::to_string(overlaps_) +
           ",\"tokens_fallen\":" + std::to_string(tokens_fallen_) + ",\"statuses\":{";
    for (const char* separator = ""; const auto& [step, counts] : statuses_) {
        out.append(separator).append("\"").append(name_of(step)) += "\":{";
        for (const char* inner = ""; const auto& [status, count] : counts) {
            out.append(inner).append("\"") += std::to_string(status) + "\":" + std::to_string(count);
            inner = ",";
        }
        out += "}";
        separator = ",";
    }
    return out + "}";
}

std::string bench_counts::text() const {
    std::string out;
    for (const auto& [work, latencies] : latencies_us_) {
        char line[64];
        std::snprintf(line, sizeof line, "%-6s%9.0f/s", std::string(name_of(work)).c_str(),
                      static_cast<double>(latencies.size()) / seconds());
        out += line;
        for (const auto& [name, share] : percentiles) {
            out.append("   ").append(name == std::string_view("p999") ? "p99.9" : name) +=
                " " + format_fixed(percentile_ms(latencies, share), 2) + " ms";
        }
        out += "\n";
    }
    for (const auto& [step, counts] : statuses_) {
        out.append(name_of(step)) += ":";
        for (const auto& [status, count] : counts)
            out += " " + (status == 0 ? "broken" : std::to_string(status)) + " ×" + std::to_string(count);
        out += "\n";
    }
    out += std::to_string(errors_) + " unexpected answers, " + std::to_string(overlaps_) + " leases held twice, " +
           std::to_string(tokens_fallen_) + " tokens that did not grow\n";
    return out;
}

}  // namespace fencegate::bench
