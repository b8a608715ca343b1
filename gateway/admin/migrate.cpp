#include <gateway/admin/migrate.hpp>

#include <gateway/admin/sql_scripts.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/pg/schema/migrate.hpp>

#include <lockcore/hmac_sha256.hpp>

#include <spdlog/spdlog.h>

#include <iostream>

namespace fencegate::admin {

int migrate(const std::string& conninfo, bool with_example, const std::vector<std::string>& proof_keys) {
    spdlog::set_level(spdlog::level::warn);
    auto scripts = schema_scripts();
    if (with_example) scripts.push_back(shop_script());
    const auto done = pg::migrate(conninfo, scripts, proof_keys);
    if (done) {
        std::cout << "The schema fencing has version " << done->version
                  << (with_example ? "; the shop example is installed" : "")
                  << (proof_keys.empty() ? ".\n" : "; callers of fencing.enter need a proof.\n");
        for (const std::string& key : proof_keys)
            std::cout << "Lease ids signed with " << lockcore::hmac_sha256::id_of(key) << " are proofs.\n";
        if (!done->recorder_fault.empty())
            std::cerr << "fencegate migrate: refusals of direct SQL are not recorded: " << done->recorder_fault << "\n";
        return exit_ok;
    }
    std::cerr << "fencegate migrate: " << done.error().detail << "\n";
    return done.error().code == errc::storage_unavailable ? exit_unavailable : exit_failed;
}

}  // namespace fencegate::admin
