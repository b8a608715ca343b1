#pragma once

#include <gateway/config/config.hpp>
#include <gateway/reload.hpp>

namespace fencegate {

/// Runs a gateway until SIGTERM or SIGINT. After SIGTERM serves for http.shutdown_grace_ms, or until another of these
/// signals, while it reports that it is not ready. Then stops accepting, refuses new leases, waits for the requests
/// under way for a limited time, and writes the event buffer to the history. SIGHUP reloads the configuration
/// (config_reload); SIGUSR1 and SIGUSR2 are logged and change nothing. Writes only to the log.
///
/// In:  `cfg` was read from `source`.
/// Out: an exit code of gateway/domain/exit_code.hpp.
int serve(const config& cfg, const config_source& source);

}  // namespace fencegate
