#include <gateway/devstack/process.hpp>

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>

namespace fencegate::devstack {
namespace {

constexpr std::size_t tail_lines = 8;

/// Drops root's privileges for good. Makes only calls that are safe after fork in a process of one thread.
bool switch_user(const account& user) {
    return initgroups(user.name.c_str(), user.gid) == 0 && setgid(user.gid) == 0 && setuid(user.uid) == 0;
}

[[noreturn]] void fail_in_child(const char* step) {
    const std::string text = std::string("fencegate dev: ") + step + ": " + std::strerror(errno) + "\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
    _exit(127);
}

[[noreturn]] void exec_program(const program& to_run, pid_t parent, int log) {
    const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (input < 0 || dup2(input, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)
        _exit(127);
    if (setpgid(0, 0) != 0) fail_in_child("setpgid");
    if (to_run.user && !switch_user(*to_run.user)) fail_in_child("change of user");
    // The change of user would reset the signal, so it is set afterwards.
    if (prctl(PR_SET_PDEATHSIG, to_run.orphan_signal) != 0) fail_in_child("prctl");
    if (getppid() != parent) _exit(127);  // The parent died before the signal was set.
    if (!to_run.folder.empty() && chdir(to_run.folder.c_str()) != 0) fail_in_child(to_run.folder.c_str());
    std::signal(SIGPIPE, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    std::vector<char*> argv;
    for (const auto& word : to_run.argv)
        argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    fail_in_child(to_run.argv[0].c_str());
}

}  // namespace

std::optional<account> unprivileged_account() {
    if (geteuid() != 0) return std::nullopt;
    for (const char* name : {"postgres", "nobody"}) {
        if (const passwd* entry = getpwnam(name); entry != nullptr && entry->pw_uid != 0) {
            return account{name, entry->pw_uid, entry->pw_gid};
        }
    }
    throw stack_error("PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody");
}

bool can_enter(const account& user, const std::filesystem::path& folder) {
    const pid_t child = fork();
    if (child < 0) throw stack_error(std::string("fork: ") + std::strerror(errno));
    if (child == 0) _exit(switch_user(user) && access(folder.c_str(), X_OK) == 0 ? 0 : 1);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

pid_t start(const program& to_run) {
    std::error_code ignored;
    if (std::filesystem::file_size(to_run.log, ignored) > log_max_bytes && !ignored) {
        std::filesystem::resize_file(to_run.log, 0, ignored);
    }
    const int log = open(to_run.log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (log < 0) throw stack_error(to_run.log.string() + ": " + std::strerror(errno));
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) exec_program(to_run, parent, log);
    const int error = errno;
    close(log);
    if (child < 0) throw stack_error("fork for " + to_run.name + ": " + std::strerror(error));
    return child;
}

void run_to_completion(const program& to_run) {
    const pid_t child = start(to_run);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    throw stack_error(to_run.name + " " + describe_exit(status) + ":\n" + log_tail(to_run.log));
}

std::string log_tail(const std::filesystem::path& log) {
    std::ifstream in(log);
    std::deque<std::string> lines;
    for (std::string line; std::getline(in, line);) {
        lines.push_back(line.substr(0, 400));
        if (lines.size() > tail_lines) lines.pop_front();
    }
    std::string text = "    (" + log.string() + ")";
    for (const auto& line : lines)
        text += "\n    " + line;
    return text;
}

std::string describe_exit(int wait_status) {
    if (WIFSIGNALED(wait_status)) return "was killed by signal " + std::to_string(WTERMSIG(wait_status));
    return "ended with " + std::to_string(WEXITSTATUS(wait_status));
}

}  // namespace fencegate::devstack
