#pragma once

#include <gateway/devstack/process.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace fencegate::devstack {

/// Keeps programs running: one that ends is started again after a second. One loop, no threads.
///
/// From its construction on SIGCHLD, SIGINT, SIGTERM, SIGUSR1, SIGUSR2 and SIGHUP (unless it is ignored) are blocked
/// and taken by the loop; its children get them unblocked. SIGINT, SIGTERM and SIGHUP stop it, SIGUSR1 and SIGUSR2
/// change nothing. Limits:  starts while waiting to become ready: a program that ends `deaths_max` times is a fault of
/// the stack.
class supervisor {
  public:
    using clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds restart_delay{1'000};
    static constexpr std::chrono::milliseconds tick{50};
    static constexpr unsigned deaths_max = 5;

    /// `changed` is called from the loop when a program that was started again answers.
    explicit supervisor(std::function<void()> changed);
    /// Kills what still runs.
    ~supervisor();
    supervisor(const supervisor&) = delete;
    supervisor& operator=(const supervisor&) = delete;

    /// Starts a program and keeps it running.
    void keep(program what);

    /// Runs the loop until `done` says so; false where a signal to stop came first. Throws stack_error after `limit`,
    /// or when a program ended too often.
    bool run_until(const std::function<bool()>& done, std::chrono::milliseconds limit, const std::string& waiting_for);

    /// Runs the loop until a signal to stop comes.
    void run();

    /// Asks the programs whose name begins so to end, waits, kills what is left then, or at once where a second signal
    /// to stop comes.
    void stop(const std::vector<std::string>& prefixes, std::chrono::milliseconds limit);

    /// The process of a program; while it is down, the last one.
    pid_t pid_of(const std::string& name) const;

  private:
    struct kept {
        program what;
        pid_t pid = 0;               ///< 0 while it is down.
        pid_t announced = 0;         ///< The latest that answered; the first one counts from its start.
        clock::time_point start_at;  ///< While it is down.
        unsigned deaths = 0;
        bool stopping = false;
    };

    /// One turn: takes a signal or waits for a tick, gathers the dead, starts what is due, tells of what answers again.
    void turn();
    void gather();
    void start_due();
    void announce();

    std::function<void()> changed_;
    std::vector<kept> kept_;
    unsigned stop_signals_ = 0;
};

}  // namespace fencegate::devstack
