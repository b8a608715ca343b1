#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace fencegate::devstack {

/// An address and a port, as in `127.0.0.1:8080` or `[::1]:8080`.
struct endpoint {
    std::string address;
    std::uint16_t port = 0;

    /// Returns the address for a client on this machine: loopback for a wildcard.
    std::string host() const;
    /// Returns host and port, as URLs have them.
    std::string authority() const;
    std::string url() const { return "http://" + authority(); }
    bool is_loopback() const;
};

/// Parses ADDR:PORT with an IPv4 or a bracketed IPv6 address. Throws stack_error.
endpoint parse_endpoint(const std::string& text);

/// Assigns ports to servers by name and keeps them in a file, so that the next start assigns the same ports if they are
/// free. Throws stack_error.
///
/// While it exists, no other registry on this machine assigns or claims the same endpoints: a server listens seconds
/// after its port was chosen, and another stack that looks at the port until then finds it free.
class port_registry {
  public:
    explicit port_registry(std::filesystem::path file);
    ~port_registry();
    port_registry(const port_registry&) = delete;
    port_registry& operator=(const port_registry&) = delete;

    /// Returns the port of the server `name`: that of the last start if it is free, else any free port below the range
    /// of outgoing connections.
    std::uint16_t assign_port(const std::string& name, const std::string& address = "127.0.0.1");
    /// Returns whether a server can listen on the endpoint now and no other registry has it; then this one has it.
    bool claim(const endpoint& target);
    /// Returns the number of names that begin with `prefix`.
    std::size_t count(const std::string& prefix) const;
    void save() const;

  private:
    bool is_assigned(std::uint16_t port) const;

    std::filesystem::path file_;
    std::map<std::string, std::uint16_t> ports_;
    std::map<std::string, std::uint16_t> assigned_;  ///< Assigned in this start.
    std::vector<int> claims_;                        ///< Sockets whose names are the endpoints.
};

/// Returns whether a server accepts a connection within half a second.
bool accepts_connections(const endpoint& target);

/// Returns the status of `GET path`; 0 if no response comes within half a second. Blocks; only for readiness checks.
unsigned get_status(const endpoint& target, const std::string& path);

}  // namespace fencegate::devstack
