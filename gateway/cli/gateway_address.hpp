#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::cli {

/// Where a gateway listens.
struct gateway_address {
    std::string host;
    std::string port;
    std::string base;       ///< What stands before every path, without a slash at its end; mostly empty.
    std::string authority;  ///< For the header Host.
    bool tls = false;

    /// As people know it: scheme, host and port.
    std::string origin() const { return (tls ? "https://" : "http://") + authority; }
};

/// Reads `http[s]://HOST[:PORT][/BASE]`. Throws std::invalid_argument with the reason.
gateway_address parse_address(const std::string& url);

/// The text with everything but letters, digits and `-._~` percent-encoded.
std::string encode(std::string_view text);

/// A path with its query. Parameters without a value are left out.
std::string target_of(std::string_view path, const std::vector<std::pair<std::string, std::string>>& parameters);

}  // namespace fencegate::cli
