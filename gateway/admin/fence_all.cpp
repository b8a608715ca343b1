#include <gateway/admin/fence_all.hpp>

#include <gateway/domain/exit_code.hpp>
#include <gateway/pg/connection/session.hpp>
#include <gateway/pg/schema/cluster.hpp>
#include <gateway/runtime/terminal.hpp>

#include <spdlog/spdlog.h>

#include <chrono>
#include <iostream>
#include <thread>

namespace fencegate::admin {
namespace {

constexpr std::chrono::seconds wait_longest{30};
constexpr std::chrono::milliseconds poll_interval{100};

}  // namespace

int fence_all(const std::string& conninfo, const std::string& reason) {
    spdlog::set_level(spdlog::level::warn);
    postgres_config cfg;
    cfg.conninfo = conninfo;
    try {
        pg::session database(cfg);
        // Sets lock_timeout: the call waits for transactions under way, and writers wait behind it.
        database.configure(cfg);
        if (const auto direct = pg::check_direct(database); !direct) {
            runtime::print_error("fence-all", direct.error().detail);
            return exit_unavailable;
        }
        database.exec("select fencing.fence_all($1::text)", {reason});
        const auto until = std::chrono::steady_clock::now() + wait_longest;
        while (std::chrono::steady_clock::now() < until) {
            const pg::storage_state state = pg::find_storage_state(database);
            if (state.current) {
                std::cout << "All tokens below " << lockcore::value_of(state.floor) * lockcore::tokens_per_epoch
                          << " are refused.\n";
                return exit_ok;
            }
            std::this_thread::sleep_for(poll_interval);
        }
        runtime::print_error("fence-all", "no gateway has set the floor yet; nothing is let in until one has.");
        return exit_unavailable;
    } catch (const pg::session_lost& e) {
        runtime::print_error("fence-all", e.what());
        return exit_unavailable;
    } catch (const pg::statement_failed& e) {
        runtime::print_error("fence-all",
                             e.what() + std::string(e.error.sqlstate == "42501"
                                                        ? "; give --conninfo of a superuser, or of the role that "
                                                          "installed the schema"
                                                        : ""));
        return exit_failed;
    }
}

}  // namespace fencegate::admin
