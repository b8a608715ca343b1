#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace fencegate::devstack {

/// Says what to do about a missing program.
inline constexpr const char* install_advice = "on Debian: apt-get install redis-server postgresql postgresql-contrib";

/// Returns the folder of the PATH where execvp finds the program; empty if it is in none.
std::filesystem::path find_on_path(const std::string& program);

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

/// Keeps programs running: restarts a program one second after it exits. Runs one loop without threads.
///
/// From its construction on, SIGCHLD, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO and SIGHUP
/// (unless it is ignored) are blocked and handled by the loop; its children start with them unblocked. SIGINT, SIGTERM
/// and SIGHUP stop the loop, the others but SIGCHLD have no effect.
///
/// Limits: a program that exits `exits_max` times before the stack is ready makes the start fail.
class supervisor {
  public:
    using clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds restart_delay{1'000};
    static constexpr std::chrono::milliseconds poll_interval{50};
    static constexpr unsigned exits_max = 5;

    /// The loop calls `on_restart` when a restarted program accepts connections.
    explicit supervisor(std::function<void()> on_restart);
    /// Kills the programs that still run.
    ~supervisor();
    supervisor(const supervisor&) = delete;
    supervisor& operator=(const supervisor&) = delete;

    /// Starts a program and keeps it running.
    void supervise(program to_run);

    /// Runs the loop until `done` returns true.
    ///
    /// Out:    false when a signal to stop came first.
    /// Errors: throws stack_error after `limit`, or when a program exited too often.
    bool run_until(const std::function<bool()>& done, std::chrono::milliseconds limit, const std::string& waiting_for);

    /// Runs the loop until a signal to stop arrives.
    void run();

    /// Sends the stop signal to the programs whose names begin with one of `prefixes`, waits up to `limit`, and kills
    /// those that still run. A second signal to stop ends the wait.
    void stop(const std::vector<std::string>& prefixes, std::chrono::milliseconds limit);

    /// Returns the process id of a program; while the program is down, the last one.
    pid_t pid_of(const std::string& name) const;

  private:
    struct supervised {
        program definition;
        pid_t pid = 0;               ///< 0 while the program is down.
        pid_t announced_pid = 0;     ///< The last process that accepted connections; the first counts from its start.
        clock::time_point start_at;  ///< Time of the next start while the program is down.
        unsigned exits = 0;
        bool stopping = false;
    };

    /// Waits for a signal or the poll interval, then reaps ended children, starts due programs and notifies of
    /// restarts.
    void run_once();
    void reap_children();
    void start_due_programs();
    void notify_restarted();

    std::function<void()> on_restart_;
    std::vector<supervised> programs_;
    unsigned stop_signals_ = 0;
};

}  // namespace fencegate::devstack
