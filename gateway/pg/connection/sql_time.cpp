#include <gateway/pg/connection/sql_time.hpp>

#include <array>
#include <cstdio>
#include <ctime>

namespace fencegate::pg {

std::string sql_time(std::chrono::sys_time<std::chrono::microseconds> at) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(at);
    const std::time_t time = seconds.time_since_epoch().count();
    std::tm parts{};
    gmtime_r(&time, &parts);
    std::array<char, 32> date{};
    std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%S", &parts);
    std::array<char, 16> fraction{};
    std::snprintf(fraction.data(), fraction.size(), ".%06dZ", static_cast<int>((at - seconds).count()));
    return std::string(date.data()) + fraction.data();
}

}  // namespace fencegate::pg
