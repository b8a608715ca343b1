#pragma once

#include <filesystem>
#include <string>

namespace fencegate::devstack {

inline constexpr unsigned gateways_max = 16;

struct options {
    std::filesystem::path data_dir = "var/dev";  ///< Contains all files of the stack. Created if missing.
    /// The first gateway's ADDR:PORT; port 0: any free one, kept between starts.
    std::string http = "127.0.0.1:8080";
    unsigned nodes = 5;     ///< Redis nodes: odd, 1 to lockcore::nodes_max. Fixed by the first start on `data_dir`.
    bool auth = false;      ///< API keys admin, orders and auditor; else every caller is `dev`.
    unsigned gateways = 1;  ///< 1 to gateways_max.
    std::string appendfsync = "always";  ///< Redis' always, everysec or no. With always a restarted node votes at once.
};

}  // namespace fencegate::devstack
