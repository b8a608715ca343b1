#pragma once

#include <gateway/devstack/process.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace fencegate::devstack {

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
