#pragma once

#include <string>

namespace fencegate::cli {

/// Why the command is not run.
struct lock_refusal {
    int exit_code;
    std::string text;       ///< For the user.
    bool conflict = false;  ///< Another caller holds the lease or has started the tick.
};

/// Returns the exit code of `fencegate lock` for an error of the gateway.
int refusal_exit_code(unsigned status);

}  // namespace fencegate::cli
