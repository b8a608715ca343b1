#pragma once

#include <gateway/cli/client.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::cli {

/// Exit codes of `fencegate lock` beside the command's own and those of gateway/app.hpp (as in sysexits.h).
enum lock_exit_code : int {
    exit_lease_lost = 65,   ///< While the command ran; it was ended.
    exit_not_granted = 75,  ///< Others hold or want the resource; the command was not started.
    exit_not_allowed = 77,  ///< The API key is missing, unknown, or without the scope `leases`.
};

struct lock_options {
    std::vector<std::string> resources;
    std::vector<std::string> command;
    std::string owner;  ///< Empty: none.
    std::chrono::milliseconds wait{0};
    std::optional<std::chrono::milliseconds> ttl;  ///< Empty: the gateway's default.
    std::chrono::milliseconds kill_after{5'000};   ///< From SIGTERM to SIGKILL, where the lease is lost.
    bool seal = false;
};

/// Runs a command while a lease is held, which the gateway renews for as long as we listen, and gives it back after.
///
/// Out: an exit code. Throws unreachable, usage_error before the command runs.
int run_locked(const gateway_options& at, const lock_options& wanted);

}  // namespace fencegate::cli
