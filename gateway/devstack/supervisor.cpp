#include <gateway/devstack/supervisor.hpp>

#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <iostream>

namespace fencegate::devstack {
namespace {

/// A SIGHUP that we were started to ignore (nohup) stays ignored: a blocked one would be taken all the same.
sigset_t signals_to_take() {
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

supervisor::supervisor(std::function<void()> changed) : changed_(std::move(changed)) {
    const sigset_t set = signals_to_take();
    sigprocmask(SIG_BLOCK, &set, nullptr);
}

supervisor::~supervisor() {
    for (const auto& each : kept_) {
        if (each.pid == 0) continue;
        kill(each.pid, SIGKILL);
        while (waitpid(each.pid, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
}

void supervisor::keep(program what) {
    kept_.push_back({std::move(what), 0, 0, clock::now(), 0, false});
    start_due();
    kept_.back().announced = kept_.back().pid;
}

void supervisor::turn() {
    const sigset_t set = signals_to_take();
    timespec wait{};
    wait.tv_nsec = std::chrono::nanoseconds(tick).count();
    const int signal = sigtimedwait(&set, nullptr, &wait);
    if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) ++stop_signals_;
    gather();
    start_due();
    announce();
}

void supervisor::gather() {
    int status = 0;
    // Only our own programs, by pid: whoever else is our child is someone else's to wait for.
    for (auto& each : kept_) {
        if (each.pid == 0 || waitpid(each.pid, &status, WNOHANG) != each.pid) continue;
        each.pid = 0;
        ++each.deaths;
        each.start_at = clock::now() + restart_delay;
        if (!each.stopping)
            std::cerr << "fencegate dev: " << each.what.name << " " << describe_end(status) << "; it starts again\n";
    }
}

void supervisor::start_due() {
    for (auto& each : kept_) {
        if (each.pid != 0 || each.stopping || clock::now() < each.start_at) continue;
        each.pid = start(each.what);
    }
}

void supervisor::announce() {
    for (auto& each : kept_) {
        if (each.pid == 0 || each.pid == each.announced || each.stopping || (each.what.answers && !each.what.answers()))
            continue;
        each.announced = each.pid;
        changed_();
    }
}

bool supervisor::run_until(const std::function<bool()>& done, std::chrono::milliseconds limit,
                           const std::string& waiting_for) {
    const auto until = clock::now() + limit;
    while (stop_signals_ == 0) {
        if (done()) return true;
        for (const auto& each : kept_) {
            if (each.deaths >= deaths_max) {
                throw stack_error(each.what.name + " does not start; the end of its log:\n" + log_tail(each.what.log));
            }
        }
        if (clock::now() >= until)
            throw stack_error(waiting_for + " is not there after " + std::to_string(limit.count() / 1000) + " s");
        turn();
    }
    return false;
}

void supervisor::run() {
    while (stop_signals_ == 0)
        turn();
}

void supervisor::stop(const std::vector<std::string>& prefixes, std::chrono::milliseconds limit) {
    std::vector<kept*> ending;
    for (auto& each : kept_) {
        const bool named =
            std::any_of(prefixes.begin(), prefixes.end(), [&](const auto& p) { return each.what.name.starts_with(p); });
        if (!named) continue;
        each.stopping = true;
        if (each.pid != 0) kill(each.pid, each.what.stop_signal);
        ending.push_back(&each);
    }
    const auto until = clock::now() + limit;
    const unsigned signals_before = stop_signals_;
    const auto runs = [](const kept* each) { return each->pid != 0; };
    while (std::any_of(ending.begin(), ending.end(), runs) && clock::now() < until && stop_signals_ == signals_before)
        turn();
    for (const auto* each : ending) {
        if (each->pid == 0) continue;
        std::cerr << "fencegate dev: " << each->what.name << " did not end in time and is killed\n";
        kill(each->pid, SIGKILL);
    }
    while (std::any_of(ending.begin(), ending.end(), runs))
        turn();
}

pid_t supervisor::pid_of(const std::string& name) const {
    const auto found =
        std::find_if(kept_.begin(), kept_.end(), [&](const kept& each) { return each.what.name == name; });
    return found == kept_.end() ? 0 : found->announced;
}

}  // namespace fencegate::devstack
