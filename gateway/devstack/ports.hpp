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

    /// Where a client on this machine finds it: a wildcard becomes loopback.
    std::string url() const;
    bool is_loopback() const;
};

/// Throws stack_error unless it is ADDR:PORT with an IPv4 or a bracketed IPv6 address.
endpoint parse_endpoint(const std::string& text);

/// Whether a server could listen there now.
bool is_free(const endpoint& where);

/// Who listens on which port, kept in a file between starts as long as the ports are still free. Throws stack_error.
class port_book {
  public:
    explicit port_book(std::filesystem::path file);

    /// The port of this name: the one of the last start if it is free, else any free one below the range of outgoing
    /// connections.
    std::uint16_t port_for(const std::string& name, const std::string& address = "127.0.0.1");
    /// How many names begin so.
    std::size_t count(const std::string& prefix) const;
    void save() const;

  private:
    bool taken(std::uint16_t port) const;

    std::filesystem::path file_;
    std::map<std::string, std::uint16_t> ports_;
    std::map<std::string, std::uint16_t> given_;  ///< In this start.
};

}  // namespace fencegate::devstack
