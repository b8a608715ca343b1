#pragma once

#include <gateway/cli/orphan_watchdog.hpp>

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::cli {

/// Runs a program in a process group of its own, with the standard input, output and error of this process. The program
/// is killed when this process dies. If this process is in the foreground of a terminal and in no pipeline, the program
/// gets the terminal, as from a shell.
class leased_command {
  public:
    /// To be called before any connection is opened. Throws std::system_error.
    leased_command();
    /// Takes back the terminal.
    ~leased_command();
    leased_command(const leased_command&) = delete;
    leased_command& operator=(const leased_command&) = delete;

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

    /// Handles a SIGCHLD; to be called on each. If the terminal or suspend() stopped the program, stops this process
    /// too, as a shell expects of a job; the caller calls resume() on SIGCONT.
    ///
    /// Out: the wait status of waitpid(2) once the program has ended, else empty.
    std::optional<int> check_status();

    /// Returns whether the program has ended and other processes of its process group still run.
    bool has_remaining_processes() const;

    /// Kills the process group after the program has ended.
    void kill_remaining_processes() const;

  private:
    bool owns_terminal() const;

    orphan_watchdog watchdog_;
    std::set<int> inherited_files_;  ///< Descriptors that were open when this object was made.
    pid_t process_ = -1;
    bool running_ = false;
    bool has_terminal_ = false;
    bool suspending_ = false;  ///< After suspend(), until resume().
};

/// Returns the exit code that a shell reports: the program's own, or 128 plus the number of the signal that killed it.
int to_exit_code(int wait_status);

}  // namespace fencegate::cli
