#include "connection.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <utility>

namespace bench {
namespace {

constexpr std::string_view end_of_header = "\r\n\r\n";

/// Returns the value of Content-Length in a response header; 0 if it is missing.
std::size_t content_length(std::string_view header) {
    static constexpr std::string_view name = "\r\ncontent-length:";
    for (std::size_t at = header.find("\r\n"); at != std::string_view::npos; at = header.find("\r\n", at + 2)) {
        if (header.size() - at <= name.size() || strncasecmp(header.data() + at, name.data(), name.size()) != 0)
            continue;
        std::size_t begin = at + name.size();
        while (begin < header.size() && header[begin] == ' ')
            ++begin;
        std::size_t length = 0;
        std::from_chars(header.data() + begin, header.data() + header.size(), length);
        return length;
    }
    return 0;
}

}  // namespace

connection::connection(connection&& other) noexcept
    : gateway_(std::move(other.gateway_)),
      socket_(std::exchange(other.socket_, -1)),
      received_(std::move(other.received_)),
      answer_(std::move(other.answer_)) {}

bool connection::open() {
    close();
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(gateway_.port);
    if (socket_ < 0 || inet_pton(AF_INET, gateway_.host.c_str(), &address.sin_addr) != 1) return false;
    if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return false;
    const int on = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fcntl(socket_, F_SETFL, O_NONBLOCK) == 0;
}

void connection::close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
    received_.clear();
    answer_.reset();
}

bool connection::send(std::string_view method, std::string_view path, std::string_view body,
                      std::string_view extra_headers) {
    std::string out;
    out.reserve(256 + body.size());
    out.append(method).append(" ").append(path).append(" HTTP/1.1\r\nHost: ").append(gateway_.host).append("\r\n");
    out.append(extra_headers);
    if (!body.empty()) {
        out.append("Content-Type: application/json\r\nContent-Length: ")
            .append(std::to_string(body.size()))
            .append("\r\n");
    }
    out.append("\r\n").append(body);
    // A request is much smaller than the socket's buffer, which is empty here: one call sends all of it, or the
    // connection is broken.
    return ::send(socket_, out.data(), out.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(out.size());
}

connection::progress connection::receive() {
    std::array<char, 16 << 10> part{};
    const ssize_t bytes = recv(socket_, part.data(), part.size(), 0);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return progress::incomplete;
    if (bytes <= 0) return progress::broken;
    received_.append(part.data(), static_cast<std::size_t>(bytes));
    return parse() ? progress::complete : progress::incomplete;
}

bool connection::parse() {
    const auto header_size = received_.find(end_of_header);
    if (header_size == std::string::npos) return false;
    const std::string_view header(received_.data(), header_size);
    const std::size_t body_offset = header_size + end_of_header.size();
    const std::size_t length = content_length(header);
    if (received_.size() < body_offset + length) return false;
    answer response;
    if (header.size() >= 12) std::from_chars(header.data() + 9, header.data() + 12, response.status);
    response.body = received_.substr(body_offset, length);
    received_.erase(0, body_offset + length);
    answer_ = std::move(response);
    return true;
}

std::string_view member(std::string_view json, std::string_view name) {
    const std::string quoted = "\"" + std::string(name) + "\"";
    std::size_t at = json.find(quoted);
    if (at == std::string_view::npos) return {};
    at = json.find_first_not_of(" :", at + quoted.size());
    if (at == std::string_view::npos) return {};
    if (json[at] == '"') {
        const auto end = json.find('"', at + 1);
        return end == std::string_view::npos ? std::string_view{} : json.substr(at + 1, end - at - 1);
    }
    return json.substr(at, json.find_first_of(",}] \n", at) - at);
}

}  // namespace bench
