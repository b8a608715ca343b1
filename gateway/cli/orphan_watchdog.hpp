#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace fencegate::cli {

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
