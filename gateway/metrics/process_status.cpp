#include <gateway/metrics/process_status.hpp>

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>

namespace fencegate::metrics {
namespace {

/// Approximates the start of the process: static variables are initialized at start-up.
const auto loaded_at = std::chrono::system_clock::now();

std::chrono::duration<double> time_of(const timeval& t) {
    return std::chrono::seconds(t.tv_sec) + std::chrono::microseconds(t.tv_usec);
}

/// Counts the open files, at most once a second: listing takes milliseconds if there are thousands, and every caller may
/// ask for metrics.
std::size_t count_open_files(std::size_t most) {
    using clock = std::chrono::steady_clock;
    static std::mutex mutex;
    static clock::time_point counted_at;
    static std::size_t count = 0;
    const std::lock_guard lock(mutex);
    const auto now = clock::now();
    if (counted_at != clock::time_point{} && now - counted_at < std::chrono::seconds(1)) return count;
    std::error_code ec;
    count = static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator("/proc/self/fd", ec), std::filesystem::directory_iterator()));
    // No file is left for the listing itself.
    if (ec == std::errc::too_many_files_open) count = most;
    counted_at = now;
    return count;
}

}  // namespace

process_status read_process_status() {
    process_status out;
    rusage used{};
    if (getrusage(RUSAGE_SELF, &used) == 0) out.processor_time = time_of(used.ru_utime) + time_of(used.ru_stime);
    std::size_t pages_total = 0, pages_resident = 0;
    if (std::ifstream statm("/proc/self/statm"); statm >> pages_total >> pages_resident)
        out.resident_bytes = pages_resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) out.open_files_max = limit.rlim_cur;
    out.open_files = count_open_files(out.open_files_max);
    out.started_at = loaded_at;
    return out;
}

}  // namespace fencegate::metrics
