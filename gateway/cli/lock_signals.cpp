#include <gateway/cli/lock_signals.hpp>

#include <algorithm>
#include <array>
#include <csignal>

namespace fencegate::cli {

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
