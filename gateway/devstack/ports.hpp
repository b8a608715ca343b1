#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace fencegate::devstack {

/// An address and a port, as in `127.0.0.1:8080` or `[::1]:8080`.
struct endpoint {
    std::string address;
    std::uint16_t port = 0;

    /// Returns the URL for a client on this machine: a wildcard address becomes loopback.
    std::string url() const;
    bool is_loopback() const;
};

/// Parses ADDR:PORT with an IPv4 or a bracketed IPv6 address. Throws stack_error.
endpoint parse_endpoint(const std::string& text);

/// Returns whether a server can listen on the endpoint now.
bool is_free(const endpoint& target);

/// Assigns ports to servers by name and keeps them in a file, so that the next start assigns the same ports if they are
/// free. Throws stack_error.
class port_registry {
  public:
    explicit port_registry(std::filesystem::path file);

    /// Returns the port of the server `name`: that of the last start if it is free, else any free port below the range
    /// of outgoing connections.
    std::uint16_t assign_port(const std::string& name, const std::string& address = "127.0.0.1");
    /// Returns the number of names that begin with `prefix`.
    std::size_t count(const std::string& prefix) const;
    void save() const;

  private:
    bool is_assigned(std::uint16_t port) const;

    std::filesystem::path file_;
    std::map<std::string, std::uint16_t> ports_;
    std::map<std::string, std::uint16_t> assigned_;  ///< Assigned in this start.
};

}  // namespace fencegate::devstack
