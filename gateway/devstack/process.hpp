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

/// Why the stack can't run; the text is for the user who started it.
class stack_error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// A user account of the operating system.
struct account {
    std::string name;
    uid_t uid = 0;
    gid_t gid = 0;
};

/// Returns the account for a process that must not be root: `postgres` if it exists, else `nobody`. Empty unless this
/// process is root.
std::optional<account> unprivileged_account();

/// Returns whether `user` may enter `folder` and all its parents. Asks the kernel in a child process of that user.
bool can_enter(const account& user, const std::filesystem::path& folder);

/// A program and the properties of its process.
struct program {
    std::string name;  ///< Used in messages and for the log.
    std::vector<std::string> argv;
    std::optional<account> user;         ///< Empty: the user of this process.
    std::filesystem::path folder;        ///< Working folder.
    std::filesystem::path log;           ///< Standard output and error are appended.
    int stop_signal = SIGTERM;           ///< Requests an orderly end.
    int orphan_signal = SIGKILL;         ///< The kernel sends it when this process dies.
    std::function<bool()> is_answering;  ///< Whether the program accepts connections; must return quickly.
};

/// A log above this size is emptied when its process starts.
inline constexpr std::uintmax_t log_max_bytes = 10'000'000;

/// Starts a program in a process group of its own, so that Ctrl-C in a terminal reaches only this process, which then
/// stops the programs in order. An error after the fork is written to the log and ends the child with 127.
///
/// Errors: throws stack_error.
pid_t start(const program& to_run);

/// Runs a program and waits for its end. Throws stack_error with the last lines of the log unless it exits with 0.
void run_to_completion(const program& to_run);

/// Returns the last lines of a log, indented.
std::string log_tail(const std::filesystem::path& log);

/// Returns "ended with 1" or "was killed by signal 9".
std::string describe_exit(int wait_status);

}  // namespace fencegate::devstack
