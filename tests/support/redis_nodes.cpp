#include <support/redis_nodes.hpp>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>

namespace fencegate::testing {
namespace {

using namespace std::chrono_literals;

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

/// Returns a free port in a range that neither the other tests nor `fencegate dev` nor outgoing connections use, so
/// that it stays free until the server starts, and while the server is killed and started again.
std::uint16_t free_port() {
    constexpr unsigned first = 5'000, count = 5'000;
    static std::atomic<unsigned> next{std::random_device{}()};
    for (unsigned tries = 0; tries < count; ++tries) {
        const auto port = static_cast<std::uint16_t>(first + next++ % count);
        const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) break;
        const sockaddr_in a = loopback(port);
        const bool free = ::bind(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0;
        ::close(fd);
        if (free) return port;
    }
    throw std::runtime_error("no free port");
}

/// Sends one inline command and returns the answer, as far as one read returns it.
std::string ask(std::uint16_t port, const std::string& command) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const timeval limit{2, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    const sockaddr_in a = loopback(port);
    std::string answer;
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0 &&
        ::send(fd, command.data(), command.size(), MSG_NOSIGNAL) > 0) {
        char buffer[4096];
        const ssize_t got = ::recv(fd, buffer, sizeof buffer, 0);
        if (got > 0) answer.assign(buffer, static_cast<std::size_t>(got));
    }
    ::close(fd);
    return answer;
}

}  // namespace

redis_nodes::redis_nodes(std::size_t count) : nodes_(count) {
    std::string pattern = (std::filesystem::temp_directory_path() / "fencegate-redis-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("no temporary folder");
    folder_ = pattern;
    for (std::size_t n = 0; n < count; ++n) {
        nodes_[n].port = free_port();
        start(n);
    }
}

redis_nodes::~redis_nodes() {
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
        if (nodes_[n].pid > 0) kill(n);
    }
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

void redis_nodes::start(std::size_t node) {
    process& p = nodes_[node];
    const std::string port = std::to_string(p.port);
    const std::string log = (folder_ / (port + ".log")).string();
    p.pid = ::fork();
    if (p.pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        const int out = ::open(log.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
        ::dup2(out, 1);
        ::dup2(out, 2);
        ::execlp("redis-server", "redis-server", "--port", port.c_str(), "--bind", "127.0.0.1", "--save", "",
                 "--appendonly", "no", "--dir", folder_.c_str(), static_cast<char*>(nullptr));
        ::_exit(127);
    }
    for (int i = 0; i < 500; ++i) {
        if (ask(p.port, "PING\r\n").starts_with("+PONG")) return;
        // Polling interval.
        std::this_thread::sleep_for(10ms);
    }
    throw std::runtime_error("redis-server does not start; see " + log);
}

void redis_nodes::kill(std::size_t node) {
    ::kill(nodes_[node].pid, SIGKILL);
    ::waitpid(nodes_[node].pid, nullptr, 0);
    nodes_[node].pid = 0;
}

void redis_nodes::pause(std::size_t node) {
    ::kill(nodes_[node].pid, SIGSTOP);
}
void redis_nodes::resume(std::size_t node) {
    ::kill(nodes_[node].pid, SIGCONT);
}

std::string redis_nodes::command(std::size_t node, const std::vector<std::string>& words) const {
    std::string line;
    for (const std::string& word : words)
        line += word + ' ';
    return ask(nodes_[node].port, line + "\r\n");
}

std::size_t redis_nodes::lease_keys(std::size_t node) const {
    const std::string answer = ask(nodes_[node].port, "EVAL \"return #redis.call('KEYS','fg:lease:*')\" 0\r\n");
    return answer.starts_with(':') ? std::stoul(answer.substr(1)) : std::size_t(-1);
}

lockcore::config redis_nodes::config() const {
    lockcore::config c;
    for (std::size_t n = 0; n < nodes_.size(); ++n)
        c.nodes.push_back({"node-" + std::to_string(n + 1), "127.0.0.1", nodes_[n].port, "", "", "", {}});
    return c;
}

}  // namespace fencegate::testing
