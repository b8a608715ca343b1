#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

namespace fencegate::cli {

/// Blocks a signal, or all, in the calling thread while this object exists.
class signal_block {
  public:
    signal_block();
    explicit signal_block(int number);
    ~signal_block();
    signal_block(const signal_block&) = delete;
    signal_block& operator=(const signal_block&) = delete;

  private:
    sigset_t previous_mask_;
};

/// Returns the process group in the foreground of the controlling terminal, which standard input and output may lack;
/// -1 if there is no terminal.
pid_t foreground_group();

/// Returns whether the process group of this process is in the foreground.
bool is_in_foreground();

/// Puts a process group into the foreground, also if this process is in the background.
void give_terminal(pid_t group);

/// Stops this process, which handles SIGTTIN, as the terminal stops a process in the background. Does nothing if the
/// process group has come into the foreground, or has received SIGCONT since the call.
void stop_in_background();

/// Returns the signals that `fencegate lock` forwards to its command: all that can be caught, also real-time signals,
/// except SIGCHLD, SIGTSTP and SIGCONT, which it handles itself, SIGPIPE, SIGTTIN and SIGTTOU, which are about its own
/// files, and those that report a fault of this program, such as SIGSEGV.
std::vector<int> forwarded_signals();

/// Returns the signals that `fencegate lock` handles: the forwarded ones and those that it handles itself; with a
/// command also SIGTTIN and SIGTTOU. Leaves out those that this process was started to ignore (nohup), except SIGCHLD:
/// the command ignores them too.
std::vector<int> handled_signals(bool has_command);

/// Returns whether a signal by default ends a process, so that it ends this program while no command runs.
bool ends_by_default(int signal);

/// Returns whether the sender of a signal asks for the end: SIGINT, SIGTERM, SIGHUP, SIGQUIT.
bool is_end_request(int signal);

/// A child process that waits for the end of this one: if this process dies without cleaning up (kill -9), the child
/// kills a process group and releases a lease. It closes the files that it inherits, so that they close when this
/// process dies, and only SIGKILL ends it: a signal to all processes of a name, or of a control group, must not.
class orphan_watchdog {
  public:
    /// To be called before any connection is opened and any thread is started. `release` is called in the child process
    /// with the lease to release, when no process of the group is left. Throws std::system_error.
    explicit orphan_watchdog(const std::function<void(const std::string&)>& release);
    /// Ends the child process; the process group keeps running.
    ~orphan_watchdog();
    orphan_watchdog(const orphan_watchdog&) = delete;
    orphan_watchdog& operator=(const orphan_watchdog&) = delete;

    /// Sets the process group to kill; 0: none. If the child process has been killed, does nothing but raise SIGPIPE.
    void guard(pid_t group);
    /// Sets the lease to release.
    void guard_lease(const std::string& lease_id);

    /// To be called with each child of this process whose status waitpid has returned after its end.
    void handle_child_exit(pid_t process);

  private:
    void send(const std::string& message) const;

    int pipe_ = -1;
    pid_t process_ = -1;  ///< -1 after its end.
};

}  // namespace fencegate::cli
