#pragma once

#include <gateway/domain/exit_code.hpp>

#include <lockcore/types.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::cli {

using lockcore::boot_clock;

/// Exit codes of `fencegate lock` beside the command's own and those of gateway/domain/exit_code.hpp (as in
/// sysexits.h).
enum lock_exit_code : int {
    exit_lease_lost = 65,      ///< The lease was lost while the command ran; the command was ended.
    exit_not_granted = 75,     ///< Other callers hold or wait for the resource; the command was not started.
    exit_not_allowed = 77,     ///< The API key is missing, unknown, or without the scope `leases`.
    exit_held_too_long = 124,  ///< The command ran for the longest hold and was ended. The code of timeout(1).
};

/// The shortest period of `--every`: it is far longer than the time between the start of a tick and its record.
constexpr std::chrono::milliseconds every_min{1'000};

struct lock_options {
    std::vector<std::string> resources;
    bool any_of = false;                                ///< One of the resources is wanted.
    bool is_shared = false;                             ///< The lease shares all resources.
    std::vector<std::string> shared;                    ///< Further resources, which the lease shares.
    std::vector<std::string> command;                   ///< Empty: holds the lease until a signal.
    std::string owner;                                  ///< Empty: none.
    std::optional<std::chrono::milliseconds> wait;      ///< Empty: no limit.
    std::optional<std::chrono::milliseconds> ttl;       ///< Empty: the gateway's default.
    std::optional<std::chrono::milliseconds> max_hold;  ///< Empty: as long as the gateway allows (lease.max_hold_ms).
    std::optional<std::chrono::milliseconds>
        at_least;                                    ///< Keep the lease for this long, however early the command ends.
    std::optional<std::chrono::milliseconds> every;  ///< The period of the schedule that starts the command.
    std::chrono::milliseconds kill_after{5'000};     ///< From SIGTERM to SIGKILL, when the lease is lost or ends.
    int conflict_exit_code = exit_not_granted;  ///< When others hold the lease or have started the tick; 0: no message.
    bool seal = false;
    bool elect = false;         ///< `fencegate elect`: competes again after a loss.
    bool exit_on_loss = false;  ///< Of elect: exits instead.
    bool persistent = false;    ///< Repeat the first request too, when no gateway answers.
};

/// Why the command is not run.
struct lock_refusal {
    int exit_code;
    std::string text;       ///< For the user.
    bool conflict = false;  ///< Another caller holds the lease or has started the tick.
};

/// Returns the exit code of `fencegate lock` for an error of the gateway.
inline int refusal_exit_code(unsigned status) {
    if (status == 410 || status == 423 || status == 429) return exit_not_granted;
    if (status == 401 || status == 403) return exit_not_allowed;
    if (status >= 500) return exit_unavailable;
    return status == 400 ? exit_usage : exit_failed;
}

}  // namespace fencegate::cli
