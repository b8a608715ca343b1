#include <gateway/devstack/dev.hpp>

#include <gateway/devstack/files.hpp>
#include <gateway/devstack/stack.hpp>
#include <gateway/devstack/supervisor.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/runtime/terminal.hpp>

#include <unistd.h>

#include <csignal>
#include <exception>
#include <iostream>

namespace fencegate::devstack {
namespace {

using namespace std::chrono_literals;

constexpr auto servers_timeout = 60s;
constexpr auto readiness_timeout = 60s;
constexpr auto stop_timeout = 8s;

/// Removes the variables PG* of libpq: a PGHOST or PGOPTIONS of the caller must not connect this process or its
/// children to another server.
void clear_libpq_environment() {
    std::vector<std::string> names;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string text = *entry;
        if (text.starts_with("PG")) names.push_back(text.substr(0, text.find('=')));
    }
    for (const auto& name : names)
        unsetenv(name.c_str());
}

/// Starts all programs in order.
///
/// Out: false when a signal to stop came first.
bool start(stack& all, supervisor& programs) {
    for (auto& node : all.nodes())
        programs.supervise(std::move(node));
    programs.supervise(all.database().server());
    if (!programs.run_until([&] { return all.database().install(); }, servers_timeout, "PostgreSQL")) return false;
    for (auto& gateway : all.gateways())
        programs.supervise(std::move(gateway));
    return programs.run_until([&] { return all.is_ready(); }, readiness_timeout, "a gateway's readiness");
}

}  // namespace

int run(const options& chosen) {
    int exit = exit_ok;
    try {
        clear_libpq_environment();
        std::signal(SIGPIPE, SIG_IGN);
        // A shell without job control starts background programs with SIGINT ignored; children would inherit that.
        std::signal(SIGINT, SIG_DFL);
        const auto started_at = std::chrono::steady_clock::now();
        const auto folder = prepare_folder(chosen.data_dir);
        const folder_lock lock(folder);
        std::cout << "fencegate dev: starting below " << folder.string() << std::endl;
        supervisor* running = nullptr;
        bool ready = false;
        std::optional<stack> all;
        supervisor programs([&] {
            if (ready) all->write_stack_file(*running);
        });
        running = &programs;
        all.emplace(folder, chosen);
        try {
            if (start(*all, programs)) {
                ready = true;
                all->write_stack_file(programs);
                const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started_at;
                std::cout << all->summary(took.count()) << std::flush;
                programs.run();
            }
        } catch (const stack_error& e) {
            runtime::print_error("dev", e.what());
            exit = exit_failed;
        }
        ready = false;
        all->remove_stack_file();
        std::cout << "fencegate dev: stopping" << std::endl;
        // Gateways stop first, so that they can still release their leases and write their events.
        programs.stop({"gateway-"}, stop_timeout);
        programs.stop({"redis-", "postgres"}, stop_timeout);
        all->database().remove_socket_folder();
        std::cout << "fencegate dev: stopped; " << folder.string() << " keeps the data" << std::endl;
    } catch (const std::exception& e) {
        runtime::print_error("dev", e.what());
        exit = exit_failed;
    }
    return exit;
}

}  // namespace fencegate::devstack
