#pragma once

#include <sys/types.h>

#include <csignal>
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

}  // namespace fencegate::cli
