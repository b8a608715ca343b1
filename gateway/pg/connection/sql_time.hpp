#pragma once

#include <chrono>
#include <string>

namespace fencegate::pg {

/// A moment as text, with microseconds, for a parameter `::timestamptz`. A time made of a number by SQL's arithmetic
/// depends on the session's settings, so that the planner would not know it and plan for every partition.
std::string sql_time(std::chrono::sys_time<std::chrono::microseconds> at);

inline std::string sql_time(std::chrono::system_clock::time_point at) {
    return sql_time(std::chrono::floor<std::chrono::microseconds>(at));
}

}  // namespace fencegate::pg
