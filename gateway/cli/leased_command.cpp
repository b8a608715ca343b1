#include <gateway/cli/leased_command.hpp>

#include <gateway/cli/job_control.hpp>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace fencegate::cli {
namespace {

std::set<int> open_files() {
    std::set<int> out;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored))
        out.insert(std::stoi(entry.path().filename().string()));
    std::erase_if(out, [](int file) { return fcntl(file, F_GETFD) < 0; });  // the descriptor of the listing itself
    return out;
}

/// Runs the program in the forked child.
[[noreturn]] void exec_program(const std::vector<char*>& argv, const std::vector<int>& handled_signals,
                               const sigset_t& mask, bool take_terminal, pid_t parent) {
    setpgid(0, 0);
    if (take_terminal) give_terminal(getpid());
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);  // the parent died before prctl took effect
    for (const int number : handled_signals)
        std::signal(number, SIG_DFL);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    execvp(argv[0], argv.data());
    const int code = errno == ENOENT ? 127 : 126;
    const std::string text = std::string("fencegate: ") + argv[0] + ": " + std::strerror(errno) + "\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
    _exit(code);
}

}  // namespace

leased_command::leased_command(std::function<void(const std::string&)> report,
                               const std::function<void(const std::string&)>& release)
    : report_(std::move(report)), watchdog_(release), inherited_files_(open_files()) {}

leased_command::~leased_command() {
    if (has_terminal_) take_back_terminal();
}

bool leased_command::owns_terminal() const {
    return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && is_in_foreground();
}

void leased_command::ignore_sigpipe() {
    sigpipe_replaced_ = std::signal(SIGPIPE, SIG_IGN) == SIG_DFL;
}

void leased_command::start(const std::vector<std::string>& argv,
                           const std::vector<std::pair<std::string, std::string>>& variables,
                           const std::vector<int>& handled_signals) {
    for (const auto& [name, value] : variables)
        setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> words;
    words.reserve(argv.size() + 1);
    for (const auto& word : argv)
        words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);

    // A library may open files that stay open across exec, as libcurl does.
    for (const int file : open_files()) {
        if (!inherited_files_.contains(file)) fcntl(file, F_SETFD, FD_CLOEXEC);
    }
    std::vector<int> reset_signals = handled_signals;
    if (sigpipe_replaced_) reset_signals.push_back(SIGPIPE);
    has_terminal_ = owns_terminal();
    // A signal that reached the child before exec would run this process's handlers there.
    sigset_t all, previous_mask;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &previous_mask);
    const pid_t parent = getpid();
    process_ = fork();
    if (process_ == 0) exec_program(words, reset_signals, previous_mask, has_terminal_, parent);
    const int failed = errno;
    if (process_ > 0) setpgid(process_, process_);  // the child does the same: either may run first
    sigprocmask(SIG_SETMASK, &previous_mask, nullptr);
    if (process_ < 0) throw std::system_error(failed, std::system_category(), "fork");
    running_ = true;
    watchdog_.guard(process_);
}

void leased_command::signal_group(int number) const {
    if (kill(-process_, number) == 0 || errno != EPERM) return;
    if (!ends_by_default(number) && number != SIGTSTP) return;  // such as SIGWINCH, on each resize of the window
    report_("signal " + std::to_string(number) + " to the command was refused (" + std::strerror(EPERM) +
            "): its processes belong to another user and may still run");
}

void leased_command::send_signal(int number) const {
    if (running_) signal_group(number);
}

void leased_command::terminate() const {
    // The program's orphans become children of this process, so that waitpid sees their end without the help of init.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    send_signal(SIGTERM);
    send_signal(SIGCONT);
}

std::optional<int> leased_command::check_status() {
    std::optional<int> ended;
    for (;;) {
        int status = 0;
        const pid_t child = waitpid(-1, &status, WNOHANG | WUNTRACED);
        if (child <= 0) return ended;
        const bool is_program = running_ && child == process_;
        if (WIFSTOPPED(status)) {
            if (is_program) handle_stop(WSTOPSIG(status));
            continue;
        }
        watchdog_.handle_child_exit(child);
        if (!is_program) continue;
        running_ = false;
        if (has_terminal_) take_back_terminal();
        ended = status;
    }
}

void leased_command::handle_stop(int number) {
    if ((number == SIGTTIN || number == SIGTTOU) && !suspending_) {
        has_terminal_ = lent_ = is_in_foreground();  // another group may have taken the terminal from the program
        // A program in the background waits until the shell, or another command of the group, returns the terminal.
        if (!has_terminal_) return stop_in_background();
        give_terminal(process_);
        send_signal(SIGCONT);
    } else if (std::exchange(has_terminal_, false)) {
        give_terminal(getpgrp());
        // As Ctrl-Z does: the shell waits until all processes of the job, such as a pipeline, have stopped.
        kill(0, SIGSTOP);
    } else if (suspending_) {
        raise(SIGSTOP);
    }
}

void leased_command::take_back_terminal() {
    has_terminal_ = lent_ = false;
    give_terminal(getpgrp());
    // Processes of the group that used the terminal meanwhile were stopped, and the shell does not continue them.
    kill(0, SIGCONT);
}

void leased_command::handle_terminal_request() {
    if (running_ && lent_ && foreground_group() == process_) return take_back_terminal();
    stop_in_background();
}

void leased_command::suspend() {
    suspending_ = true;
    send_signal(SIGTSTP);
}

void leased_command::resume() {
    suspending_ = false;
    if (running_ && !has_terminal_ && owns_terminal()) {
        give_terminal(process_);
        has_terminal_ = true;
    }
    send_signal(SIGCONT);
}

bool leased_command::has_remaining_processes() const {
    if (process_ <= 0 || running_) return false;
    while (waitpid(-process_, nullptr, WNOHANG) > 0) {
    }
    return kill(-process_, 0) == 0 || errno == EPERM;
}

void leased_command::kill_remaining_processes() {
    if (process_ > 0 && !running_) signal_group(SIGKILL);
    watchdog_.guard(0);
}

int to_exit_code(int wait_status) {
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

}  // namespace fencegate::cli
