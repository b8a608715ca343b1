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

/// Root's rights are gone for good afterwards. Only calls that are safe after fork in a process of one thread.
bool become(const account& who) {
    return initgroups(who.name.c_str(), who.gid) == 0 && setgid(who.gid) == 0 && setuid(who.uid) == 0;
}

[[noreturn]] void fail_in_child(const char* step) {
    const std::string text = std::string("fencegate dev: ") + step + ": " + std::strerror(errno) + "\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
    _exit(127);
}

[[noreturn]] void become_program(const program& what, pid_t parent, int log) {
    const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (input < 0 || dup2(input, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)
        _exit(127);
    if (setpgid(0, 0) != 0) fail_in_child("setpgid");
    if (what.user && !become(*what.user)) fail_in_child("change of user");
    // After the change of user, which would clear it.
    if (prctl(PR_SET_PDEATHSIG, what.orphan_signal) != 0) fail_in_child("prctl");
    if (getppid() != parent) _exit(127);  // The parent died before the signal was set.
    if (!what.folder.empty() && chdir(what.folder.c_str()) != 0) fail_in_child(what.folder.c_str());
    std::signal(SIGPIPE, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    std::vector<char*> argv;
    for (const auto& word : what.argv)
        argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    fail_in_child(what.argv[0].c_str());
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

bool can_enter(const account& who, const std::filesystem::path& folder) {
    const pid_t child = fork();
    if (child < 0) throw stack_error(std::string("fork: ") + std::strerror(errno));
    if (child == 0) _exit(become(who) && access(folder.c_str(), X_OK) == 0 ? 0 : 1);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

pid_t start(const program& what) {
    std::error_code ignored;
    if (std::filesystem::file_size(what.log, ignored) > log_max_bytes && !ignored) {
        std::filesystem::resize_file(what.log, 0, ignored);
    }
    const int log = open(what.log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (log < 0) throw stack_error(what.log.string() + ": " + std::strerror(errno));
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) become_program(what, parent, log);
    const int error = errno;
    close(log);
    if (child < 0) throw stack_error("fork for " + what.name + ": " + std::strerror(error));
    return child;
}

void run_to_end(const program& what) {
    const pid_t child = start(what);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    throw stack_error(what.name + " " + describe_end(status) + ":\n" + log_tail(what.log));
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

std::string describe_end(int wait_status) {
    if (WIFSIGNALED(wait_status)) return "was killed by signal " + std::to_string(WTERMSIG(wait_status));
    return "ended with " + std::to_string(WEXITSTATUS(wait_status));
}

}  // namespace fencegate::devstack
