#pragma once

#include <chrono>
#include <cstddef>

namespace fencegate::metrics {

/// The state of this process, from /proc.
struct process_status {
    std::chrono::duration<double> processor_time{};
    std::size_t resident_bytes = 0;
    std::size_t open_files = 0, open_files_max = 0;
    std::chrono::system_clock::time_point started_at{};
};

process_status read_process_status();

}  // namespace fencegate::metrics
