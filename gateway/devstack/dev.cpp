#include <gateway/devstack/dev.hpp>

#include <gateway/app.hpp>
#include <gateway/devstack/files.hpp>
#include <gateway/devstack/stack.hpp>
#include <gateway/devstack/supervisor.hpp>

#include <unistd.h>

#include <csignal>
#include <exception>
#include <iostream>

namespace fencegate::devstack {
namespace {

using namespace std::chrono_literals;

constexpr auto servers_within = 60s;
constexpr auto ready_within = 60s;
constexpr auto stop_within = 8s;

/// libpq reads PG* from the environment; a PGHOST or PGOPTIONS of the caller's must not lead us or our children to
/// another server.
void forget_libpq_environment() {
    std::vector<std::string> names;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string text = *entry;
        if (text.starts_with("PG")) names.push_back(text.substr(0, text.find('=')));
    }
    for (const auto& name : names)
        unsetenv(name.c_str());
}

/// Starts everything in order; false where it was told to stop meanwhile.
bool start(stack& all, supervisor& keeper) {
    for (auto& node : all.nodes())
        keeper.keep(std::move(node));
    keeper.keep(all.database().server());
    if (!keeper.run_until([&] { return all.database().install(); }, servers_within, "PostgreSQL")) return false;
    for (auto& gateway : all.gateways())
        keeper.keep(std::move(gateway));
    return keeper.run_until([&] { return all.is_ready(); }, ready_within, "a gateway's readiness");
}

}  // namespace

int run(const options& wanted) {
    int exit = exit_ok;
    try {
        forget_libpq_environment();
        std::signal(SIGPIPE, SIG_IGN);
        // A shell without job control starts its background programs with SIGINT ignored, and children would inherit
        // that.
        std::signal(SIGINT, SIG_DFL);
        const auto began = std::chrono::steady_clock::now();
        const auto folder = prepare_folder(wanted.data_dir);
        const folder_lock lock(folder);
        std::cout << "fencegate dev: starting below " << folder.string() << std::endl;
        supervisor* told = nullptr;
        bool ready = false;
        std::optional<stack> all;
        supervisor keeper([&] {
            if (ready) all->write_facts(*told);
        });
        told = &keeper;
        all.emplace(folder, wanted);
        try {
            if (start(*all, keeper)) {
                ready = true;
                all->write_facts(keeper);
                const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
                std::cout << all->summary(took.count()) << std::flush;
                keeper.run();
            }
        } catch (const stack_error& e) {
            std::cerr << "fencegate dev: " << e.what() << "\n";
            exit = exit_failed;
        }
        ready = false;
        all->forget_facts();
        std::cout << "fencegate dev: stopping" << std::endl;
        // Gateways first, so that they can still release and write what they hold.
        keeper.stop({"gateway-"}, stop_within);
        keeper.stop({"redis-", "postgres"}, stop_within);
        all->database().tidy();
        std::cout << "fencegate dev: stopped; " << folder.string() << " keeps the data" << std::endl;
    } catch (const std::exception& e) {
        std::cerr << "fencegate dev: " << e.what() << "\n";
        exit = exit_failed;
    }
    return exit;
}

}  // namespace fencegate::devstack
