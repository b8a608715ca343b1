#pragma once

#include <sys/types.h>

namespace fencegate::cli {

/// A process beside ours that does nothing but wait for our end: if we die without a word (kill -9), it kills the
/// process group that it guards. It holds none of our files, so that what we had open closes with us.
class orphan_watchdog {
  public:
    /// Throws std::system_error. Before any connection is opened and any thread started.
    orphan_watchdog();
    /// Ends it; what it guarded stays.
    ~orphan_watchdog();
    orphan_watchdog(const orphan_watchdog&) = delete;
    orphan_watchdog& operator=(const orphan_watchdog&) = delete;

    void guard(pid_t group);

  private:
    int pipe_ = -1;
    pid_t process_ = -1;
};

}  // namespace fencegate::cli
