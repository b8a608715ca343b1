#pragma once

#include <gateway/config/config.hpp>

namespace fencegate {

/// Runs a gateway until SIGTERM or SIGINT. Then stops accepting, refuses new leases, waits for the requests under way
/// for a limited time, and writes the event buffer to the history. SIGHUP, SIGUSR1 and SIGUSR2 are logged and change
/// nothing. Writes only to the log.
///
/// Out: an exit code of gateway/domain/exit_code.hpp.
int serve(const config& cfg);

}  // namespace fencegate
