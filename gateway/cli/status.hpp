#pragma once

#include <gateway/cli/client.hpp>

namespace fencegate::cli {

/// Shows whether a gateway is ready, its version and the nodes as it sees them.
///
/// Out: exit_ok if it is ready, else exit_failed. Throws unreachable, refused.
int show_status(const client& gateway, bool json);

}  // namespace fencegate::cli
