#include <gateway/admin/commands.hpp>

#include <gateway/admin/example_files.hpp>
#include <gateway/admin/schema_files.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/pg/connection/session.hpp>
#include <gateway/pg/schema/cluster.hpp>
#include <gateway/pg/schema/migrate.hpp>
#include <gateway/runtime/text.hpp>

#include <lockcore/hmac_sha256.hpp>

#include <spdlog/spdlog.h>

#include <chrono>
#include <iostream>
#include <thread>

namespace fencegate::admin {
namespace {

constexpr std::chrono::seconds wait_longest{30};
constexpr std::chrono::milliseconds poll_interval{100};

}  // namespace

sql_scripts schema_scripts() {
    sql_scripts out;
    for (const auto& file : schema::files)
        out.emplace_back(file.name, file.text);
    return out;
}

sql_script shop_script() {
    return {"shop.sql", std::string(examples::file("shop.sql"))};
}

int migrate(const migrate_options& options) {
    spdlog::set_level(spdlog::level::warn);
    auto scripts = schema_scripts();
    if (options.with_example) scripts.push_back(shop_script());
    const pg::migration_extras& extras = options.extras;
    const auto done = pg::migrate(options.conninfo, scripts, extras);
    if (done) {
        std::cout << "The schema fencing has version " << done->version
                  << (options.with_example ? "; the shop example is installed" : "")
                  << (extras.proof_keys.empty() ? ".\n" : "; callers of fencing.enter need a proof.\n");
        if (!extras.gateway_role.empty())
            std::cout << "The role " << extras.gateway_role << " is a member of fencing_gateway.\n";
        for (const std::string& key : extras.proof_keys)
            std::cout << "Lease ids signed with " << lockcore::hmac_sha256::id_of(key) << " are proofs.\n";
        if (!done->recorder_fault.empty())
            runtime::print_error("migrate", "refusals of direct SQL are not recorded: " + done->recorder_fault);
        return exit_ok;
    }
    runtime::print_error("migrate", done.error().detail);
    return done.error().code == errc::storage_unavailable ? exit_unavailable : exit_failed;
}

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
