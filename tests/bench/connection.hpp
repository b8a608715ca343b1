#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bench {

using clock = std::chrono::steady_clock;

/// The address of a gateway.
struct endpoint {
    std::string host;
    std::uint16_t port = 0;
};

struct answer {
    int status = 0;
    std::string body;
};

/// One keep-alive HTTP/1.1 connection with at most one pending request; non-blocking after `open`. Parses only
/// responses with Content-Length, so that the client costs little CPU compared with the server.
class connection {
  public:
    explicit connection(endpoint gateway) : gateway_(std::move(gateway)) {}
    ~connection() { close(); }
    connection(connection&& other) noexcept;
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;
    connection& operator=(connection&&) = delete;

    /// Connects and blocks until then. Returns false if the connection fails.
    bool open();
    void close();
    int socket() const { return socket_; }

    /// Sends a request. Returns false if the connection broke.
    bool send(std::string_view method, std::string_view path, std::string_view body, std::string_view extra_headers);

    enum class progress { incomplete, complete, broken };
    /// Reads what has arrived. After `complete`, take_answer() returns the answer.
    progress receive();
    answer take_answer() { return std::move(*answer_); }

  private:
    bool parse();

    endpoint gateway_;
    int socket_ = -1;
    std::string received_;
    std::optional<answer> answer_;
};

/// Returns the text of the first string member, or the digits of the first number member, with this name in `json`;
/// empty if there is none.
std::string_view member(std::string_view json, std::string_view name);

}  // namespace bench
