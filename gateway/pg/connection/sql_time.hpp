#pragma once

#include <chrono>
#include <string>

namespace fencegate::pg {

/// Returns a moment as text with microseconds, for a parameter `::timestamptz`. A time that SQL computes from a number
/// depends on the session's settings, so that the planner would not know its value and would plan for every partition.
std::string sql_time(std::chrono::sys_time<std::chrono::microseconds> at);

inline std::string sql_time(std::chrono::system_clock::time_point at) {
    return sql_time(std::chrono::floor<std::chrono::microseconds>(at));
}

}  // namespace fencegate::pg
