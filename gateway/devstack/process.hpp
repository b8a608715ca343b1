#pragma once

#include <sys/types.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace fencegate::devstack {

/// Why the stack can't run, in words for the person who started it.
class stack_error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// An account of the system.
struct account {
    std::string name;
    uid_t uid = 0;
    gid_t gid = 0;
};

/// For a process that must not be root: `postgres` if there is such a user, else `nobody`. Empty unless we are root.
std::optional<account> unprivileged_account();

/// Whether `who` may enter every folder on the way to `folder` and `folder` itself. Asks the kernel, as that user.
bool can_enter(const account& who, const std::filesystem::path& folder);

/// A program and all that its process starts with.
struct program {
    std::string name;  ///< In messages and as its log's name.
    std::vector<std::string> argv;
    std::optional<account> user;    ///< Empty: ours.
    std::filesystem::path folder;   ///< Working folder.
    std::filesystem::path log;      ///< Standard output and error are added to it.
    int stop_signal = SIGTERM;      ///< Asks it to end in good order.
    int orphan_signal = SIGKILL;    ///< What the kernel sends it when we die without a word.
    std::function<bool()> answers;  ///< Whether it takes connections; quick.
};

/// Logs above this size begin anew when their process starts.
inline constexpr std::uintmax_t log_max_bytes = 10'000'000;

/// Starts it in a process group of its own, so that Ctrl-C in a terminal reaches us alone and the order of stopping is
/// ours. What goes wrong after the fork stands in the log; the process then ends with 127. Throws stack_error.
pid_t start(const program& what);

/// Starts it and waits for its end. Throws stack_error with the end of the log unless it ends with 0.
void run_to_end(const program& what);

/// The last lines of a log, indented.
std::string log_tail(const std::filesystem::path& log);

/// "ended with 1", "killed by signal 9".
std::string describe_end(int wait_status);

}  // namespace fencegate::devstack
