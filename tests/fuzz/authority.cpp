// Host headers, origins and the entries of http.allowed_hosts.
#include "fuzz.hpp"

#include <gateway/config/authority.hpp>

#include <string>

namespace fencegate::fuzz {

void run_input(std::string_view input) {
    const auto read = parse_authority(input);
    if (!read) return;
    require(!read->host.empty() && read->host.size() <= 255, "a host is not empty and bounded");
    require(read->host.find_first_of("/@?#[]% \t\r\n") == std::string::npos,
            "a host has no sign that begins another part of a URL");
    const bool is_ipv6 = read->host.find(':') != std::string::npos;
    std::string written = is_ipv6 ? "[" + read->host + "]" : read->host;
    if (read->port) written += ":" + std::to_string(*read->port);
    require(parse_authority(written) == read, "an authority that was written is read as it was");
    is_loopback_host(read->host);
}

}  // namespace fencegate::fuzz
