#pragma once

#include <gateway/cli/client.hpp>

namespace fencegate::cli {

/// Prints whether a gateway is ready, its version and the state of its Redis nodes.
///
/// Out:    exit_ok if the gateway is ready, else exit_failed.
/// Errors: throws gateway_unreachable, gateway_refusal.
int show_status(const client& gateway, bool json);

}  // namespace fencegate::cli
