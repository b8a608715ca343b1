#pragma once

#include <gateway/config/config.hpp>

namespace fencegate {

/// Exit codes of every subcommand. (64 and 78 as in sysexits.h.)
enum exit_code : int {
    exit_ok = 0,
    exit_failed = 1,        ///< It ran and did not succeed.
    exit_usage = 64,        ///< Wrong arguments.
    exit_unavailable = 69,  ///< PostgreSQL, Redis or the gateway can't be reached, or does not fit.
    exit_bad_config = 78,   ///< The configuration is faulty.
};

/// Runs a gateway until SIGTERM or SIGINT: stops accepting, refuses new leases, lets requests under way finish
/// (bounded), writes out the history buffer, closes. SIGHUP, SIGUSR1 and SIGUSR2 are logged and change nothing. Prints
/// what it does to the log only.
int serve(const config& cfg);

}  // namespace fencegate
