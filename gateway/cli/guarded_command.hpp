#pragma once

#include <gateway/cli/orphan_watchdog.hpp>

#include <sys/types.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::cli {

/// A program that runs in a process group of its own with our standard input, output and error, and that does not
/// outlive us. While we own the terminal and are in no pipeline, it gets the terminal, as a shell would give it.
class guarded_command {
  public:
    /// Throws std::system_error. Before any connection is opened.
    guarded_command();
    /// Takes the terminal back.
    ~guarded_command();
    guarded_command(const guarded_command&) = delete;
    guarded_command& operator=(const guarded_command&) = delete;

    /// Starts it with `more` in its environment and `handled` signals as they are by default. It inherits the files
    /// that were open when this object was made, and no other. One that is not there ends with 127, one that can't be
    /// executed with 126. Throws std::system_error.
    void start(const std::vector<std::string>& argv, const std::vector<std::pair<std::string, std::string>>& more,
               const std::vector<int>& handled);

    /// To its process group; nothing before the start and after the end.
    void signal(int number) const;

    /// Asks it and all of its process group to end.
    void end() const;

    /// To be called on each SIGCHLD: how it ended, as waitpid tells it, once it has. Where it was stopped by the
    /// terminal (Ctrl-Z), stops us too, and goes on with it after a call of `resumed`.
    std::optional<int> look(const std::function<void()>& resumed);

    /// After its end: whether others of its process group are left.
    bool left_something() const;

    /// After its end: kills what is left of its process group.
    void kill_rest() const;

  private:
    void stop_with_it(const std::function<void()>& resumed);
    bool owns_terminal() const;

    orphan_watchdog watchdog_;
    std::set<int> inherited_;  ///< Files that were open before we opened any.
    pid_t process_ = -1;
    bool running_ = false;
    bool has_terminal_ = false;
};

/// The exit code of a shell for it: its own, or 128 and the signal's number.
int exit_code_of(int wait_status);

}  // namespace fencegate::cli
