#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::cli {

/// The parts of a gateway's URL.
struct gateway_address {
    std::string host;
    std::string base;       ///< Prefix of every path, without a slash at its end; usually empty.
    std::string authority;  ///< Host and port as given.
    bool tls = false;

    /// Returns scheme, host and port.
    std::string origin() const { return (tls ? "https://" : "http://") + authority; }

    /// Returns whether the host is a loopback name or address.
    bool is_loopback() const;
};

/// Parses `http[s]://HOST[:PORT][/BASE]`. Throws std::invalid_argument with the reason.
gateway_address parse_address(const std::string& url);

/// Returns a path with its query string, encoded. Parameters without a value are left out.
std::string make_target(std::string_view path, const std::vector<std::pair<std::string, std::string>>& parameters);

}  // namespace fencegate::cli
