#include <gateway/devstack/ports.hpp>

#include <gateway/devstack/files.hpp>
#include <gateway/devstack/process.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <random>
#include <sstream>

namespace fencegate::devstack {
namespace {

/// Below Linux' range for outgoing connections (32768 and up), so that none of those takes a server's port while it
/// restarts.
constexpr std::uint16_t first_port = 20'000;
constexpr std::uint16_t last_port = 31'999;

socklen_t fill(const endpoint& where, sockaddr_storage& out) {
    std::memset(&out, 0, sizeof out);
    auto* v4 = reinterpret_cast<sockaddr_in*>(&out);
    if (inet_pton(AF_INET, where.address.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(where.port);
        return sizeof *v4;
    }
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&out);
    if (inet_pton(AF_INET6, where.address.c_str(), &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(where.port);
        return sizeof *v6;
    }
    return 0;
}

}  // namespace

std::string endpoint::url() const {
    std::string host = address;
    if (host == "0.0.0.0") host = "127.0.0.1";
    if (host == "::") host = "::1";
    if (host.find(':') != std::string::npos) host = "[" + host + "]";
    return "http://" + host + ":" + std::to_string(port);
}

bool endpoint::is_loopback() const {
    return address.starts_with("127.") || address == "::1";
}

endpoint parse_endpoint(const std::string& text) {
    const auto colon = text.rfind(':');
    const auto fail = [&] { return stack_error("\"" + text + "\" is not ADDR:PORT, as in 127.0.0.1:8080"); };
    if (colon == std::string::npos) throw fail();
    endpoint where;
    where.address = text.substr(0, colon);
    if (where.address.size() > 2 && where.address.front() == '[' && where.address.back() == ']') {
        where.address = where.address.substr(1, where.address.size() - 2);
    }
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, where.port);
    sockaddr_storage ignored;
    if (error != std::errc{} || stop != end || fill(where, ignored) == 0) throw fail();
    return where;
}

bool is_free(const endpoint& where) {
    sockaddr_storage address;
    const socklen_t size = fill(where, address);
    const int probe = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe < 0) return false;
    // As the servers do: connections of the last start that linger do not count.
    const int yes = 1;
    setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const bool is = bind(probe, reinterpret_cast<const sockaddr*>(&address), size) == 0 && listen(probe, 1) == 0;
    close(probe);
    return is;
}

port_book::port_book(std::filesystem::path file) : file_(std::move(file)) {
    std::istringstream lines(read_all(file_));
    std::string name;
    unsigned port = 0;
    while (lines >> name >> port) {
        if (port > 0 && port <= 65'535) ports_[name] = static_cast<std::uint16_t>(port);
    }
}

bool port_book::taken(std::uint16_t port) const {
    return std::any_of(given_.begin(), given_.end(), [&](const auto& each) { return each.second == port; });
}

std::uint16_t port_book::port_for(const std::string& name, const std::string& address) {
    if (const auto kept = ports_.find(name);
        kept != ports_.end() && !taken(kept->second) && is_free({address, kept->second})) {
        return given_[name] = kept->second;
    }
    const auto reserved = [&](std::uint16_t port) {
        return std::any_of(ports_.begin(), ports_.end(), [&](const auto& each) { return each.second == port; });
    };
    constexpr unsigned ports = last_port - first_port + 1;
    const unsigned offset =
        std::random_device{}() % ports;  // So that two stacks that start together rarely choose alike.
    for (unsigned i = 0; i < ports; ++i) {
        const auto port = static_cast<std::uint16_t>(first_port + (offset + i) % ports);
        if (taken(port) || reserved(port) || !is_free({address, port})) continue;
        ports_[name] = port;
        return given_[name] = port;
    }
    throw stack_error("no free port between 20000 and 31999");
}

std::size_t port_book::count(const std::string& prefix) const {
    return static_cast<std::size_t>(
        std::count_if(ports_.begin(), ports_.end(), [&](const auto& each) { return each.first.starts_with(prefix); }));
}

void port_book::save() const {
    std::string text;
    for (const auto& [name, port] : ports_)
        text += name + " " + std::to_string(port) + "\n";
    write_atomically(file_, text, 0644);
}

}  // namespace fencegate::devstack
