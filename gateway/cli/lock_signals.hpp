#pragma once

#include <vector>

namespace fencegate::cli {

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
