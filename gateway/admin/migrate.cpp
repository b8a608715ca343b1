#include <gateway/admin/migrate.hpp>

#include <gateway/admin/sql_scripts.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/pg/schema/migrate.hpp>
#include <gateway/runtime/terminal.hpp>

#include <lockcore/hmac_sha256.hpp>

#include <spdlog/spdlog.h>

#include <iostream>

namespace fencegate::admin {

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

}  // namespace fencegate::admin
