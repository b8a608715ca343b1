#include <gateway/cli/orphan_watchdog.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

namespace fencegate::cli {
namespace {

[[noreturn]] void watch_parent(int pipe) {
    // A process group of its own, so that signals of the terminal do not reach this process.
    setpgid(0, 0);
    if (dup2(pipe, 0) != 0) _exit(1);
    close_range(1, ~0U, 0);
    pid_t group = 0;
    for (;;) {
        pid_t received = 0;
        const auto bytes = read(0, &received, sizeof received);
        if (bytes == static_cast<ssize_t>(sizeof received)) group = received;
        if (bytes == 0) break;
        if (bytes < 0 && errno != EINTR) break;
    }
    if (group > 0) kill(-group, SIGKILL);
    _exit(0);
}

}  // namespace

orphan_watchdog::orphan_watchdog() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::system_category(), "pipe");
    sigset_t all, previous_mask;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &previous_mask);
    process_ = fork();
    if (process_ == 0) {  // keeps all signals blocked
        close(ends[1]);
        watch_parent(ends[0]);
    }
    const int failed = errno;
    sigprocmask(SIG_SETMASK, &previous_mask, nullptr);
    close(ends[0]);
    pipe_ = ends[1];
    if (process_ < 0) {
        close(pipe_);
        throw std::system_error(failed, std::system_category(), "fork");
    }
}

orphan_watchdog::~orphan_watchdog() {
    if (process_ > 0) kill(process_, SIGKILL);
    while (process_ > 0 && waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
    close(pipe_);
}

void orphan_watchdog::guard(pid_t group) {
    while (write(pipe_, &group, sizeof group) < 0 && errno == EINTR) {
    }
}

void orphan_watchdog::handle_child_exit(pid_t process) {
    if (process == process_) process_ = -1;
}

}  // namespace fencegate::cli
