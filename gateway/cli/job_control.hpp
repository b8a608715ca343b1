#pragma once

#include <sys/types.h>

#include <csignal>

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

}  // namespace fencegate::cli
