#pragma once

#include <gateway/cli/job_control.hpp>

#include <sys/types.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::cli {

/// Runs a program in a process group of its own, with the standard input, output and error of this process. The program
/// is killed when this process dies. If this process is in the foreground of a terminal, the program gets the terminal,
/// as from a shell: at its start, or in a pipeline or with redirected input or output when it uses the terminal.
class leased_command {
  public:
    /// To be called before any connection is opened. `report` is called with a text for the user when the system
    /// refuses to send a signal, because all processes of the program that remain belong to another user (sudo).
    /// `release` is called in a process of its own with the lease of guard_lease() when this process dies.
    ///
    /// Errors: throws std::system_error.
    leased_command(std::function<void(const std::string&)> report,
                   const std::function<void(const std::string&)>& release);
    /// Takes back the terminal.
    ~leased_command();
    leased_command(const leased_command&) = delete;
    leased_command& operator=(const leased_command&) = delete;

    /// Ignores SIGPIPE in this process from now on, so that the end of the reader of its messages does not kill the
    /// program. The program gets the action that this process was started with.
    void ignore_sigpipe();

    /// Sets the lease that is released when this process dies, after the program was killed.
    void guard_lease(const std::string& lease_id) { watchdog_.guard_lease(lease_id); }

    /// Starts the program with `variables` added to its environment and the default action for `handled_signals`. It
    /// inherits only the files that were open when this object was made. Exits with 127 if the program is not found,
    /// with 126 if it can't be executed.
    ///
    /// Errors: throws std::system_error.
    void start(const std::vector<std::string>& argv, const std::vector<std::pair<std::string, std::string>>& variables,
               const std::vector<int>& handled_signals);

    /// Sends a signal to the process group of the program. Does nothing unless the program runs.
    void send_signal(int number) const;

    /// Sends SIGTERM to the process group of the program.
    void terminate() const;

    /// Stops the program as the terminal does by Ctrl-Z. Once it has stopped, check_status stops this process too.
    void suspend();

    /// Continues the program after this process was continued, and gives it the terminal if this process is in the
    /// foreground of one.
    void resume();

    /// Handles a SIGCHLD; to be called on each. Gives the terminal to a program that was stopped because it used the
    /// terminal, if this process is in the foreground. If the terminal or suspend() stopped the program otherwise,
    /// stops this process too, and its process group if the program had the terminal, as a shell expects of a job; the
    /// caller calls resume() on SIGCONT. At the end of a program that had the terminal, takes it back and continues the
    /// process group. Also takes the status of the processes that terminate() made children of this one.
    ///
    /// Out: the wait status of waitpid(2) once the program has ended, else empty.
    std::optional<int> check_status();

    /// Handles a SIGTTIN or SIGTTOU: another process of the own process group, such as the pager of a pipeline, has
    /// used the terminal, and the system has signalled the group. Takes back a terminal that the program got when it
    /// used it, and continues the group; the program gets it again by its next use. Otherwise stops this process.
    void handle_terminal_request();

    /// Returns whether the program has ended and other processes of its process group still run, also as another user.
    bool has_remaining_processes() const;

    /// Kills the process group after the program has ended. From then on the death of this process kills no group,
    /// because the system may give the id of this one to other processes.
    void kill_remaining_processes();

  private:
    bool owns_terminal() const;
    void signal_group(int number) const;
    void handle_stop(int number);
    void take_back_terminal();

    std::function<void(const std::string&)> report_;
    orphan_watchdog watchdog_;
    std::set<int> inherited_files_;  ///< Descriptors that were open when this object was made.
    pid_t process_ = -1;
    bool running_ = false;
    bool has_terminal_ = false;
    bool lent_ = false;              ///< The program has the terminal because it used it.
    bool suspending_ = false;        ///< After suspend(), until resume().
    bool sigpipe_replaced_ = false;  ///< The program needs the default action for SIGPIPE, which this process ignores.
};

/// Returns the exit code that a shell reports: the program's own, or 128 plus the number of the signal that killed it.
int to_exit_code(int wait_status);

}  // namespace fencegate::cli
