#pragma once

#include <chrono>

namespace fencegate::metrics {

/// Returns a duration in seconds, the unit of all metrics of time.
double to_seconds(auto duration) {
    return std::chrono::duration<double>(duration).count();
}

}  // namespace fencegate::metrics
