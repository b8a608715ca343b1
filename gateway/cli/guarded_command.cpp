#include <gateway/cli/guarded_command.hpp>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace fencegate::cli {
namespace {

/// The terminal for another process group, also from the background, where SIGTTOU would stop us.
void give_terminal(pid_t group) {
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTTOU);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    tcsetpgrp(STDIN_FILENO, group);
    sigprocmask(SIG_SETMASK, &before, nullptr);
}

std::set<int> open_files() {
    std::set<int> out;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored))
        out.insert(std::stoi(entry.path().filename().string()));
    std::erase_if(out, [](int file) { return fcntl(file, F_GETFD) < 0; });  // the one of the listing itself
    return out;
}

[[noreturn]] void become(const std::vector<char*>& argv, const std::vector<int>& handled, const sigset_t& mask,
                         bool with_terminal, pid_t parent) {
    setpgid(0, 0);
    if (with_terminal) give_terminal(getpid());
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);  // it died before the signal was set
    for (const int number : handled)
        std::signal(number, SIG_DFL);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    execvp(argv[0], argv.data());
    const int code = errno == ENOENT ? 127 : 126;
    const std::string text = std::string("fencegate lock: ") + argv[0] + ": " + std::strerror(errno) + "\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
    _exit(code);
}

}  // namespace

guarded_command::guarded_command() : inherited_(open_files()) {}

guarded_command::~guarded_command() {
    if (has_terminal_) give_terminal(getpgrp());
}

bool guarded_command::owns_terminal() const {
    return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

void guarded_command::start(const std::vector<std::string>& argv,
                            const std::vector<std::pair<std::string, std::string>>& more,
                            const std::vector<int>& handled) {
    for (const auto& [name, value] : more)
        setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> words;
    words.reserve(argv.size() + 1);
    for (const auto& word : argv)
        words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);

    // A library may open files that stay open across exec, as libcurl does.
    for (const int file : open_files()) {
        if (!inherited_.contains(file)) fcntl(file, F_SETFD, FD_CLOEXEC);
    }
    has_terminal_ = owns_terminal();
    // What comes before the program has our handlers off would be taken for ours.
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    const pid_t parent = getpid();
    process_ = fork();
    if (process_ == 0) become(words, handled, before, has_terminal_, parent);
    const int failed = errno;
    if (process_ > 0) setpgid(process_, process_);  // here too: whoever comes first
    sigprocmask(SIG_SETMASK, &before, nullptr);
    if (process_ < 0) throw std::system_error(failed, std::system_category(), "fork");
    running_ = true;
    watchdog_.guard(process_);
}

void guarded_command::signal(int number) const {
    if (running_) kill(-process_, number);
}

void guarded_command::end() const {
    // Its children that it leaves become ours, so that we see when they are gone and need no init that cleans up.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGTERM);
    signal(SIGCONT);
}

std::optional<int> guarded_command::look(const std::function<void()>& resumed) {
    int status = 0;
    while (running_ && waitpid(process_, &status, WNOHANG | WUNTRACED) == process_) {
        if (WIFSTOPPED(status)) {
            if (has_terminal_) stop_with_it(resumed);
            continue;
        }
        running_ = false;
        if (has_terminal_) give_terminal(getpgrp());
        has_terminal_ = false;
        return status;
    }
    return std::nullopt;
}

void guarded_command::stop_with_it(const std::function<void()>& resumed) {
    give_terminal(getpgrp());
    raise(SIGSTOP);
    resumed();
    if (tcgetpgrp(STDIN_FILENO) == getpgrp()) give_terminal(process_);
    signal(SIGCONT);
}

bool guarded_command::left_something() const {
    if (process_ <= 0 || running_) return false;
    while (waitpid(-process_, nullptr, WNOHANG) > 0) {
    }
    return kill(-process_, 0) == 0;
}

void guarded_command::kill_rest() const {
    if (process_ > 0 && !running_) kill(-process_, SIGKILL);
}

int exit_code_of(int wait_status) {
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

}  // namespace fencegate::cli
