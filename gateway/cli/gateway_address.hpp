#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::cli {

/// Where a gateway listens.
struct gateway_address {
    std::string host;
    std::string base;       ///< What stands before every path, without a slash at its end; mostly empty.
    std::string authority;  ///< Host and port as they were given.
    bool tls = false;

    /// As people know it: scheme, host and port.
    std::string origin() const { return (tls ? "https://" : "http://") + authority; }

    /// Whether it is this machine, by its name or address.
    bool is_loopback() const;
};

/// Reads `http[s]://HOST[:PORT][/BASE]`. Throws std::invalid_argument with the reason.
gateway_address parse_address(const std::string& url);

/// A path with its query. Parameters without a value are left out.
std::string target_of(std::string_view path, const std::vector<std::pair<std::string, std::string>>& parameters);

}  // namespace fencegate::cli
