#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bench {

using clock = std::chrono::steady_clock;

/// Where a gateway listens.
struct endpoint {
    std::string host;
    std::uint16_t port = 0;
};

struct answer {
    int status = 0;
    std::string body;
};

/// One keep-alive HTTP/1.1 connection with at most one request under way; non-blocking after `open`.
/// Just enough HTTP for a server that sends Content-Length, so that the client costs little beside what it measures.
class connection {
  public:
    explicit connection(endpoint where) : where_(std::move(where)) {}
    ~connection() { close(); }
    connection(connection&& other) noexcept;
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;
    connection& operator=(connection&&) = delete;

    /// Connects, blocking. False if nobody listens.
    bool open();
    void close();
    int socket() const { return socket_; }

    /// Sends a request; the answer is due now. False if the connection broke.
    bool send(std::string_view method, std::string_view path, std::string_view body, std::string_view more_headers);

    enum class progress { more, complete, broken };
    /// Reads what is there. `complete`: `take` gives the answer.
    progress receive();
    answer take() { return std::move(*answer_); }

  private:
    bool parse();

    endpoint where_;
    int socket_ = -1;
    std::string in_;
    std::optional<answer> answer_;
};

/// The text of a string member or the digits of a number member of a flat place in `json`; empty if it is not there.
std::string_view member(std::string_view json, std::string_view name);

}  // namespace bench
