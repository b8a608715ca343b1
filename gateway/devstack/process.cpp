#include <gateway/devstack/process.hpp>

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <iostream>

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

/// Returns the signals that the loop handles. Leaves out a SIGHUP that this process was started to ignore (nohup),
/// because blocking would make the loop receive it.
sigset_t handled_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO})
        sigaddset(&set, signal);
    struct sigaction hangup {};
    sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
    return set;
}

}  // namespace

std::filesystem::path find_on_path(const std::string& program) {
    const char* variable = std::getenv("PATH");
    const std::string path = variable == nullptr ? "/bin:/usr/bin" : variable;
    for (std::size_t begin = 0; begin < path.size();) {
        const std::size_t end = std::min(path.find(':', begin), path.size());
        const std::filesystem::path folder = path.substr(begin, end - begin);
        if (access((folder / program).c_str(), X_OK) == 0) return folder;
        begin = end + 1;
    }
    return {};
}

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

supervisor::supervisor(std::function<void()> on_restart) : on_restart_(std::move(on_restart)) {
    const sigset_t set = handled_signals();
    sigprocmask(SIG_BLOCK, &set, nullptr);
}

supervisor::~supervisor() {
    for (const auto& each : programs_) {
        if (each.pid == 0) continue;
        kill(each.pid, SIGKILL);
        while (waitpid(each.pid, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
}

void supervisor::supervise(program to_run) {
    programs_.push_back({std::move(to_run), 0, 0, clock::now(), 0, false});
    start_due_programs();
    programs_.back().announced_pid = programs_.back().pid;
}

void supervisor::run_once() {
    const sigset_t set = handled_signals();
    timespec wait{};
    wait.tv_nsec = std::chrono::nanoseconds(poll_interval).count();
    const int signal = sigtimedwait(&set, nullptr, &wait);
    if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) ++stop_signals_;
    reap_children();
    start_due_programs();
    notify_restarted();
}

void supervisor::reap_children() {
    int status = 0;
    // Waits for its own programs by pid, because other code may wait for other children of this process.
    for (auto& each : programs_) {
        if (each.pid == 0 || waitpid(each.pid, &status, WNOHANG) != each.pid) continue;
        each.pid = 0;
        ++each.exits;
        each.start_at = clock::now() + restart_delay;
        if (!each.stopping)
            std::cerr << "fencegate dev: " << each.definition.name << " " << describe_exit(status)
                      << "; it starts again\n";
    }
}

void supervisor::start_due_programs() {
    for (auto& each : programs_) {
        if (each.pid != 0 || each.stopping || clock::now() < each.start_at) continue;
        each.pid = start(each.definition);
    }
}

void supervisor::notify_restarted() {
    for (auto& each : programs_) {
        if (each.pid == 0 || each.pid == each.announced_pid || each.stopping ||
            (each.definition.is_answering && !each.definition.is_answering()))
            continue;
        each.announced_pid = each.pid;
        on_restart_();
    }
}

bool supervisor::run_until(const std::function<bool()>& done, std::chrono::milliseconds limit,
                           const std::string& waiting_for) {
    const auto deadline = clock::now() + limit;
    while (stop_signals_ == 0) {
        if (done()) return true;
        for (const auto& each : programs_) {
            if (each.exits >= exits_max) {
                throw stack_error(each.definition.name + " does not start; the end of its log:\n" +
                                  log_tail(each.definition.log));
            }
        }
        if (clock::now() >= deadline)
            throw stack_error("timed out after " + std::to_string(limit.count() / 1000) + " s waiting for " +
                              waiting_for);
        run_once();
    }
    return false;
}

void supervisor::run() {
    while (stop_signals_ == 0)
        run_once();
}

void supervisor::stop(const std::vector<std::string>& prefixes, std::chrono::milliseconds limit) {
    std::vector<supervised*> ending;
    for (auto& each : programs_) {
        const bool selected = std::any_of(prefixes.begin(), prefixes.end(),
                                          [&](const auto& p) { return each.definition.name.starts_with(p); });
        if (!selected) continue;
        each.stopping = true;
        if (each.pid != 0) kill(each.pid, each.definition.stop_signal);
        ending.push_back(&each);
    }
    const auto deadline = clock::now() + limit;
    const unsigned signals_before = stop_signals_;
    const auto is_running = [](const supervised* each) { return each->pid != 0; };
    while (std::any_of(ending.begin(), ending.end(), is_running) && clock::now() < deadline &&
           stop_signals_ == signals_before)
        run_once();
    for (const auto* each : ending) {
        if (each->pid == 0) continue;
        std::cerr << "fencegate dev: " << each->definition.name << " did not exit in time and is killed\n";
        kill(each->pid, SIGKILL);
    }
    while (std::any_of(ending.begin(), ending.end(), is_running))
        run_once();
}

pid_t supervisor::pid_of(const std::string& name) const {
    const auto found = std::find_if(programs_.begin(), programs_.end(),
                                    [&](const supervised& each) { return each.definition.name == name; });
    return found == programs_.end() ? 0 : found->announced_pid;
}

}  // namespace fencegate::devstack
