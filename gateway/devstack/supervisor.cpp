#include <gateway/devstack/supervisor.hpp>

#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <iostream>

namespace fencegate::devstack {
namespace {

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
