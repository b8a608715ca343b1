#include <gateway/devstack/probe_http.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

namespace fencegate::devstack {

namespace {

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
