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

/// A connection with half a second for each step, or -1. A wildcard address means loopback.
int dial(const endpoint& where) {
    const bool v6 = where.address.find(':') != std::string::npos;
    const int connection = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0) return -1;
    const timeval limit{0, 500'000};
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    bool connected = false;
    if (v6) {
        sockaddr_in6 to{};
        to.sin6_family = AF_INET6;
        to.sin6_port = htons(where.port);
        inet_pton(AF_INET6, where.address == "::" ? "::1" : where.address.c_str(), &to.sin6_addr);
        connected = connect(connection, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
    } else {
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(where.port);
        inet_pton(AF_INET, where.address == "0.0.0.0" ? "127.0.0.1" : where.address.c_str(), &to.sin_addr);
        connected = connect(connection, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
    }
    if (connected) return connection;
    close(connection);
    return -1;
}

}  // namespace

bool accepts(const endpoint& where) {
    const int connection = dial(where);
    if (connection >= 0) close(connection);
    return connection >= 0;
}

unsigned get_status(const endpoint& where, const std::string& path) {
    const int connection = dial(where);
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
