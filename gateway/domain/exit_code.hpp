#pragma once

namespace fencegate {

/// Exit codes of every command; 64, 69 and 78 as in sysexits.h.
enum exit_code : int {
    exit_ok = 0,
    exit_failed = 1,        ///< The command failed.
    exit_usage = 64,        ///< Wrong arguments.
    exit_unavailable = 69,  ///< PostgreSQL, Redis or the gateway cannot be reached, or is incompatible.
    exit_bad_config = 78,   ///< The configuration is faulty.
};

}  // namespace fencegate
