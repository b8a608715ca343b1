#include "tally.hpp"

#include <algorithm>
#include <cstdio>

namespace bench {
namespace {

std::string format_fixed(double value, int digits) {
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
}

}  // namespace

const char* to_string(step s) {
    switch (s) {
        case step::acquire:
            return "acquire";
        case step::write:
            return "write";
        case step::release:
            return "release";
    }
    return "?";
}

void tally::record_operation(clock::duration took) {
    if (!measuring_) return;
    latencies_us_.push_back(
        static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::microseconds>(took).count()));
}

void tally::record_answer(step s, int status, bool expected) {
    ++statuses_[s][status];
    if (!expected) ++errors_;
    if (measuring_) ++requests_;
}

void tally::record_disconnect(step s) {
    record_answer(s, 0, false);
}

void tally::record_write() {
    if (measuring_) ++writes_;
}

double tally::latency_percentile_ms(double share) const {
    if (latencies_us_.empty()) return 0;
    const auto last = latencies_us_.size() - 1;
    const auto at = static_cast<std::size_t>(share * static_cast<double>(latencies_us_.size()));
    return latencies_us_[std::min(at, last)] / 1000.0;
}

std::string tally::json(const std::string& operation, double seconds) {
    std::sort(latencies_us_.begin(), latencies_us_.end());
    const auto rate = [seconds](std::uint64_t count) { return format_fixed(static_cast<double>(count) / seconds, 1); };
    std::string out = "\"seconds\":" + format_fixed(seconds, 2) + ",\"ops\":" + std::to_string(operations()) +
                      ",\"ops_per_s\":" + rate(operations()) + ",\"" + operation + "_per_s\":" + rate(operations());
    if (operation != "writes") out += ",\"writes_per_s\":" + rate(writes_);
    out += ",\"requests_per_s\":" + rate(requests_) + ",\"p50_ms\":" + format_fixed(latency_percentile_ms(.5), 3) +
           ",\"p99_ms\":" + format_fixed(latency_percentile_ms(.99), 3) +
           ",\"max_ms\":" + format_fixed(latency_percentile_ms(1), 3) + ",\"errors\":" + std::to_string(errors_) +
           ",\"overlaps\":" + std::to_string(overlaps_) + ",\"tokens_fallen\":" + std::to_string(token_decreases_) +
           ",\"statuses\":{";
    bool first_step = true;
    for (const auto& [name, counts] : statuses_) {
        out += std::string(first_step ? "" : ",") + "\"" + to_string(name) + "\":{";
        first_step = false;
        bool first = true;
        for (const auto& [status, count] : counts) {
            out += (first ? "\"" : ",\"") + std::to_string(status) + "\":" + std::to_string(count);
            first = false;
        }
        out += "}";
    }
    return out + "}";
}

std::string tally::summary(const std::string& operation, double seconds) {
    std::sort(latencies_us_.begin(), latencies_us_.end());
    std::string out = format_fixed(static_cast<double>(operations()) / seconds, 0) + " " + operation + "/s   p50 " +
                      format_fixed(latency_percentile_ms(.5), 2) + " ms   p99 " +
                      format_fixed(latency_percentile_ms(.99), 2) + " ms   max " +
                      format_fixed(latency_percentile_ms(1), 1) + " ms   errors " + std::to_string(errors_);
    for (const auto& [name, counts] : statuses_) {
        out += std::string("   ") + to_string(name);
        for (const auto& [status, count] : counts) {
            out += (status == 0 ? " broken" : " " + std::to_string(status)) + "×" + std::to_string(count);
        }
    }
    return out;
}

}  // namespace bench
