#include <gateway/devstack/ports.hpp>

#include <gateway/config/authority.hpp>
#include <gateway/devstack/files.hpp>
#include <gateway/devstack/process.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>

namespace fencegate::devstack {
namespace {

/// Ports below Linux' range for outgoing connections (32768 and up), so that no such connection takes a server's port
/// while the server restarts.
constexpr std::uint16_t first_port = 20'000;
constexpr std::uint16_t last_port = 31'999;

socklen_t to_socket_address(const endpoint& target, sockaddr_storage& out) {
    std::memset(&out, 0, sizeof out);
    auto* v4 = reinterpret_cast<sockaddr_in*>(&out);
    if (inet_pton(AF_INET, target.address.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(target.port);
        return sizeof *v4;
    }
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&out);
    if (inet_pton(AF_INET6, target.address.c_str(), &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(target.port);
        return sizeof *v6;
    }
    return 0;
}

/// Returns whether a server can listen on the endpoint now.
bool is_free(const endpoint& target) {
    sockaddr_storage address;
    const socklen_t size = to_socket_address(target, address);
    const int probe = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe < 0) return false;
    // As the servers do: connections of the last start in TIME_WAIT do not block the port.
    const int yes = 1;
    setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const bool available = bind(probe, reinterpret_cast<const sockaddr*>(&address), size) == 0 && listen(probe, 1) == 0;
    close(probe);
    return available;
}

/// Opens a connection with a timeout of half a second for each operation; -1 on failure. A wildcard address means
/// loopback.
int connect_to(const endpoint& target) {
    const bool v6 = target.address.find(':') != std::string::npos;
    const int connection = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0) return -1;
    const timeval limit{0, 500'000};
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    bool connected = false;
    if (v6) {
        sockaddr_in6 address{};
        address.sin6_family = AF_INET6;
        address.sin6_port = htons(target.port);
        inet_pton(AF_INET6, target.address == "::" ? "::1" : target.address.c_str(), &address.sin6_addr);
        connected = connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    } else {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(target.port);
        inet_pton(AF_INET, target.address == "0.0.0.0" ? "127.0.0.1" : target.address.c_str(), &address.sin_addr);
        connected = connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    }
    if (connected) return connection;
    close(connection);
    return -1;
}

}  // namespace

std::string endpoint::host() const {
    return address == "0.0.0.0" ? "127.0.0.1" : address == "::" ? "::1" : address;
}

std::string endpoint::authority() const {
    return format_url_host(host()) + ":" + std::to_string(port);
}

bool endpoint::is_loopback() const {
    return address.starts_with("127.") || address == "::1";
}

endpoint parse_endpoint(const std::string& text) {
    const auto colon = text.rfind(':');
    const auto fail = [&] { return stack_error("\"" + text + "\" is not ADDR:PORT, as in 127.0.0.1:8080"); };
    if (colon == std::string::npos) throw fail();
    endpoint target;
    target.address = text.substr(0, colon);
    if (target.address.size() > 2 && target.address.front() == '[' && target.address.back() == ']') {
        target.address = target.address.substr(1, target.address.size() - 2);
    }
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, target.port);
    sockaddr_storage ignored;
    if (error != std::errc{} || stop != end || to_socket_address(target, ignored) == 0) throw fail();
    return target;
}

port_registry::port_registry(std::filesystem::path file) : file_(std::move(file)) {
    std::istringstream lines(read_file(file_));
    std::string name;
    unsigned port = 0;
    while (lines >> name >> port) {
        if (port > 0 && port <= 65'535) ports_[name] = static_cast<std::uint16_t>(port);
    }
}

port_registry::~port_registry() {
    for (const int socket : claims_)
        close(socket);
}

bool port_registry::claim(const endpoint& target) {
    if (!is_free(target)) return false;
    // A name in the abstract namespace of Unix sockets: of one network namespace, as ports are, and gone with the
    // process.
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const std::string text = "fencegate dev " + target.address + ":" + std::to_string(target.port);
    text.copy(name.sun_path + 1, sizeof name.sun_path - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket < 0) return false;
    if (bind(socket, reinterpret_cast<const sockaddr*>(&name), size) != 0) {
        close(socket);
        return false;
    }
    claims_.push_back(socket);
    return true;
}

bool port_registry::is_assigned(std::uint16_t port) const {
    return std::any_of(assigned_.begin(), assigned_.end(), [&](const auto& each) { return each.second == port; });
}

std::uint16_t port_registry::assign_port(const std::string& name, const std::string& address) {
    if (const auto previous = ports_.find(name);
        previous != ports_.end() && !is_assigned(previous->second) && claim({address, previous->second})) {
        return assigned_[name] = previous->second;
    }
    const auto reserved = [&](std::uint16_t port) {
        return std::any_of(ports_.begin(), ports_.end(), [&](const auto& each) { return each.second == port; });
    };
    constexpr unsigned ports = last_port - first_port + 1;
    // A random offset, so that two stacks that start together rarely choose the same port.
    const unsigned offset = std::random_device{}() % ports;
    for (unsigned i = 0; i < ports; ++i) {
        const auto port = static_cast<std::uint16_t>(first_port + (offset + i) % ports);
        if (is_assigned(port) || reserved(port) || !claim({address, port})) continue;
        ports_[name] = port;
        return assigned_[name] = port;
    }
    throw stack_error("no free port between 20000 and 31999");
}

std::size_t port_registry::count(const std::string& prefix) const {
    return static_cast<std::size_t>(
        std::count_if(ports_.begin(), ports_.end(), [&](const auto& each) { return each.first.starts_with(prefix); }));
}

void port_registry::save() const {
    std::string text;
    for (const auto& [name, port] : ports_)
        text += name + " " + std::to_string(port) + "\n";
    write_atomically(file_, text, 0644);
}

bool accepts_connections(const endpoint& target) {
    const int connection = connect_to(target);
    if (connection >= 0) close(connection);
    return connection >= 0;
}

unsigned get_status(const endpoint& target, const std::string& path) {
    const int connection = connect_to(target);
    if (connection < 0) return 0;
    unsigned status = 0;
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    std::array<char, 64> answer{};
    if (send(connection, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size()) &&
        recv(connection, answer.data(), 12, MSG_WAITALL) == 12 && std::strncmp(answer.data(), "HTTP/1.", 7) == 0) {
        status = static_cast<unsigned>(std::atoi(answer.data() + 9));
    }
    close(connection);
    return status;
}

}  // namespace fencegate::devstack
