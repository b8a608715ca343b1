#include <gateway/cli/job_control.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string_view>
#include <system_error>
#include <thread>

namespace fencegate::cli {
namespace {

/// Returns -1 if there is none.
int open_terminal() {
    return open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
}

}  // namespace

signal_block::signal_block() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous_mask_);
}

signal_block::signal_block(int number) {
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, number);
    pthread_sigmask(SIG_BLOCK, &blocked, &previous_mask_);
}

signal_block::~signal_block() {
    pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
}

pid_t foreground_group() {
    const int terminal = open_terminal();
    if (terminal < 0) return -1;
    const pid_t out = tcgetpgrp(terminal);
    close(terminal);
    return out;
}

bool is_in_foreground() {
    return foreground_group() == getpgrp();
}

void give_terminal(pid_t group) {
    const int terminal = open_terminal();
    if (terminal < 0) return;
    const signal_block block(SIGTTOU);  // it would stop a caller in the background
    tcsetpgrp(terminal, group);
    close(terminal);
}

void stop_in_background() {
    struct sigaction action {
    }, previous{};
    action.sa_handler = SIG_DFL;
    {
        const signal_block block(SIGTTIN);
        sigaction(SIGTTIN, &action, &previous);
        raise(SIGTTIN);
        // SIGCONT follows each return of the terminal, and removes the pending signal. A SIGSTOP after the check could
        // come after that SIGCONT, and would stop this process for ever.
        action.sa_handler = SIG_IGN;
        if (is_in_foreground()) sigaction(SIGTTIN, &action, nullptr);  // discards the pending signal
    }
    sigaction(SIGTTIN, &previous, nullptr);
}

std::vector<int> forwarded_signals() {
    constexpr std::array excluded{SIGKILL, SIGSTOP, SIGCHLD, SIGTSTP, SIGCONT, SIGPIPE, SIGTTIN,
                                  SIGTTOU, SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,  SIGTRAP, SIGSYS};
    std::vector<int> out;
    for (int number = 1; number <= SIGRTMAX; ++number) {
        // The C library uses the numbers between SIGSYS and SIGRTMIN itself.
        const bool reserved = number > SIGSYS && number < SIGRTMIN;
        if (!reserved && std::ranges::find(excluded, number) == excluded.end()) out.push_back(number);
    }
    return out;
}

std::vector<int> handled_signals(bool has_command) {
    auto out = forwarded_signals();
    out.insert(out.end(), {SIGCHLD, SIGCONT, SIGTSTP});
    if (has_command) out.insert(out.end(), {SIGTTIN, SIGTTOU});
    std::erase_if(out, [](int number) {
        struct sigaction current {};
        sigaction(number, nullptr, &current);
        return current.sa_handler == SIG_IGN && number != SIGCHLD;
    });
    return out;
}

bool ends_by_default(int signal) {
    return signal != SIGURG && signal != SIGWINCH && signal != SIGCONT && signal != SIGCHLD;
}

bool is_end_request(int signal) {
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

namespace {

using namespace std::chrono_literals;

constexpr std::string_view group_line = "group ", lease_line = "lease ";

/// How long the killed processes may take to end; the lease is left to its ttl otherwise.
constexpr auto end_of_group_max = 5s;
constexpr auto group_poll_interval = 10ms;

/// What the watchdog has to do, by the lines that it has received: `group NUMBER`, `lease ID`.
struct orphan_duties {
    pid_t group = 0;
    std::string lease_id;
};

orphan_duties read_duties() {
    orphan_duties out;
    std::string text;
    std::array<char, 4096> piece;
    for (;;) {
        const auto bytes = read(0, piece.data(), piece.size());
        if (bytes == 0 || (bytes < 0 && errno != EINTR)) return out;
        if (bytes > 0) text.append(piece.data(), static_cast<std::size_t>(bytes));
        for (auto end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
            const std::string line = text.substr(0, end);
            text.erase(0, end + 1);
            if (line.starts_with(group_line)) out.group = std::stoi(line.substr(group_line.size()));
            if (line.starts_with(lease_line)) out.lease_id = line.substr(lease_line.size());
        }
    }
}

bool kill_group(pid_t group) {
    if (group <= 0) return true;
    kill(-group, SIGKILL);
    for (auto waited = 0ms; waited < end_of_group_max; waited += group_poll_interval) {
        if (kill(-group, 0) != 0 && errno == ESRCH) return true;
        std::this_thread::sleep_for(group_poll_interval);
    }
    return false;
}

[[noreturn]] void watch_parent(int pipe, const std::function<void(const std::string&)>& release) {
    // A process group of its own, so that signals of the terminal do not reach this process.
    setpgid(0, 0);
    if (dup2(pipe, 0) != 0) _exit(1);
    close_range(1, ~0U, 0);
    const orphan_duties duties = read_duties();
    const bool ended = kill_group(duties.group);
    if (ended && !duties.lease_id.empty()) release(duties.lease_id);
    _exit(0);
}

}  // namespace

orphan_watchdog::orphan_watchdog(const std::function<void(const std::string&)>& release) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::system_category(), "pipe");
    sigset_t all, previous_mask;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &previous_mask);
    process_ = fork();
    if (process_ == 0) {  // keeps all signals blocked
        close(ends[1]);
        watch_parent(ends[0], release);
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
    send(std::string(group_line) + std::to_string(group) + "\n");
}

void orphan_watchdog::guard_lease(const std::string& lease_id) {
    send(std::string(lease_line) + lease_id + "\n");
}

void orphan_watchdog::send(const std::string& message) const {
    std::string_view left = message;
    while (!left.empty()) {
        const auto bytes = write(pipe_, left.data(), left.size());
        if (bytes > 0) left.remove_prefix(static_cast<std::size_t>(bytes));
        if (bytes < 0 && errno != EINTR) return;
    }
}

void orphan_watchdog::handle_child_exit(pid_t process) {
    if (process == process_) process_ = -1;
}

}  // namespace fencegate::cli
