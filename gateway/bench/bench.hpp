#pragma once

namespace fencegate::cli {
class commands;
}

namespace fencegate::bench {

/// Adds `fencegate bench` to the commands that call gateways.
void add_command(cli::commands& commands);

}  // namespace fencegate::bench
