#pragma once

#include <gateway/cli/client.hpp>
#include <gateway/cli/lock_options.hpp>

namespace fencegate::cli {

/// Acquires a lease, runs a command and releases the lease; without a command holds the lease until a signal. With
/// `elect` competes for the lease again after a loss, unless `exit_on_loss` is set. This process renews the lease, at
/// any of the gateways, so that the lease ends if the process does or is stopped. The validity of the lease is counted
/// on boot_clock from the sending of each request, however long the response took, so that the command never starts
/// under an expired lease.
///
/// Out:    an exit code.
/// Errors: throws gateway_unreachable and usage_error before the command runs.
int run_locked(const gateway_options& gateway, const lock_options& options);

}  // namespace fencegate::cli
