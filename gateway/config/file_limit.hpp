#pragma once

#include <gateway/config/config.hpp>

#include <cstddef>
#include <string>

namespace fencegate {

/// How many files and sockets this process may open, and how they are divided.
struct file_limit {
    std::size_t files = 0;     ///< The limit of the operating system (RLIMIT_NOFILE).
    std::size_t reserved = 0;  ///< Maximum number of files for PostgreSQL, Redis, the threads and the log.
    /// HTTP connections: http.connections_max, or the rest if that is less. 0: too few to serve.
    std::size_t connections = 0;

    /// Returns one line for the log and for `fencegate check`.
    std::string describe(const config& cfg) const;
};

/// Raises this process's soft limit of open files to the hard limit, and divides it.
file_limit raise_file_limit(const config& cfg);

/// Divides `files` between HTTP and everything else.
file_limit divide_files(std::size_t files, const config& cfg);

}  // namespace fencegate
