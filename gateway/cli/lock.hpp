#pragma once

#include <gateway/cli/client.hpp>
#include <gateway/cli/lock_options.hpp>

namespace fencegate::cli {

/// Runs a command while a lease is held, which the gateway renews for as long as we listen, and gives it back after.
/// Until when the lease is ours is counted on boot_clock from our own requests, whatever time an answer takes to
/// arrive: the command is never started under a lease that is over.
///
/// Out: an exit code. Throws unreachable, usage_error before the command runs.
int run_locked(const gateway_options& at, const lock_options& wanted);

}  // namespace fencegate::cli
