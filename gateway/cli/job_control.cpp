#include <gateway/cli/job_control.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

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

}  // namespace fencegate::cli
