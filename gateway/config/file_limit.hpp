#pragma once

#include <gateway/config/config.hpp>

#include <cstddef>
#include <string>

namespace fencegate {

/// How many files and sockets this process may have open, and for what.
struct file_limit {
    std::size_t files = 0;     ///< The limit of the operating system (RLIMIT_NOFILE).
    std::size_t reserved = 0;  ///< For PostgreSQL, Redis, the threads and the log, at most.
    std::size_t connections =
        0;  ///< Of HTTP: http.connections_max, or fewer where the rest is less. 0: too few to serve.

    /// One line for the log and for `fencegate check`.
    std::string describe(const config& cfg) const;
};

/// Raises the soft limit of open files to the hard one, for this process, and divides what that gives.
file_limit raise_file_limit(const config& cfg);

/// How `files` are divided.
file_limit divide_files(std::size_t files, const config& cfg);

}  // namespace fencegate
