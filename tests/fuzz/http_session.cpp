// The bytes of a connection, served by a whole session over a pair of local sockets,
// with a handler that notes what it gets.
#include "fuzz.hpp"
#include "http_reading.hpp"

#include <gateway/http/codec/json_io.hpp>
#include <gateway/http/transport/session.hpp>
#include <gateway/limits/limiter.hpp>

#include <spdlog/spdlog.h>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fencegate::fuzz {
namespace {

namespace asio = boost::asio;

struct silent_observer final : http::request_observer {
    void on_served(const http::served_request&) noexcept override { ++served; }
    std::size_t served = 0;
};

/// What a session did with a connection's bytes.
struct served_connection {
    std::vector<std::string> handled;  ///< Method, path and body of the requests that reached a handler.
    std::string answers;
};

class gateway {
  public:
    gateway() {
        spdlog::set_level(spdlog::level::off);
        http_config cfg;
        cfg.header_max_bytes = header_max_bytes;
        cfg.header_fields_max = header_fields_max;
        cfg.body_max_bytes = body_max_bytes;
        std::vector<http::route> routes;
        for (const http::method verb : {http::method::get, http::method::post, http::method::put, http::method::del}) {
            for (const char* path : {"/echo", "/x/{name}"})
                routes.push_back(
                    {verb, path, std::nullopt, [this](http::request r) { return handle(std::move(r)); }, false});
        }
        auto router = std::make_shared<const http::router>(std::move(routes));
        auto dispatcher = std::make_shared<const http::dispatcher>(std::move(router), auth_config{}, cfg, limiter_);
        group_ = std::make_shared<http::session_group>(io_, cfg, std::move(dispatcher), nullptr, connections_, memory_,
                                                       limiter_, observer_);
    }
    ~gateway() { group_->close_all(); }

    /// Serves one connection whose bytes arrive in the given pieces.
    served_connection serve(const std::vector<std::string_view>& pieces) {
        std::array<int, 2> ends{};
        require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0,
                "the target has sockets");
        http::tcp_socket socket(io_.get_executor());
        socket.assign(asio::ip::tcp::v4(), ends[0]);
        const auto peer = asio::ip::make_address("127.0.0.1");
        connections_->add(peer);
        http::session::start(std::make_shared<http::session>(std::move(socket), peer, group_));
        result_ = {};
        io_.poll();
        for (const std::string_view piece : pieces) {
            if (::send(ends[1], piece.data(), piece.size(), MSG_NOSIGNAL) < 0)
                break;  // the session has closed the connection
            io_.poll();
            receive(ends[1]);
        }
        ::shutdown(ends[1], SHUT_WR);
        io_.poll();
        receive(ends[1]);
        ::close(ends[1]);
        io_.poll();
        require(connections_->value() == 0, "a session ends with its connection");
        require(memory_.bodies.used() == 0 && memory_.answers.used() == 0, "a session that has ended holds no memory");
        return std::move(result_);
    }

  private:
    http::awaitable_response handle(http::request r) {
        result_.handled.push_back(std::string(http::to_string(r.verb)) + ' ' + r.path + '?' + r.query + '\n' + r.body);
        co_return http::json_response("{\"size\":" + std::to_string(r.body.size()) + "}");
    }
    void receive(int end) {
        std::array<char, 4096> piece;
        for (;;) {
            const auto size = ::recv(end, piece.data(), piece.size(), 0);
            if (size <= 0) return;
            result_.answers.append(piece.data(), static_cast<std::size_t>(size));
        }
    }

    asio::io_context io_{1};
    asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
    std::shared_ptr<http::connection_count> connections_ = std::make_shared<http::connection_count>(10, 0);
    memory_budgets memory_{1 << 20, 1 << 20};
    limits::limiter limiter_{limits_config{}, {.requests = 10, .waiters = 10, .history_streams = 10}, true};
    silent_observer observer_;
    std::shared_ptr<http::session_group> group_;
    served_connection result_;
};

/// Reads the answers of a connection: their statuses. `requests` tells which of them have no body.
std::vector<unsigned> read_answers(std::string_view answers, const std::vector<read_request>& requests) {
    std::vector<unsigned> statuses;
    while (!answers.empty()) {
        require(answers.starts_with("HTTP/1.1 ") || answers.starts_with("HTTP/1.0 "),
                "an answer begins where the one before ended");
        const std::size_t head_end = answers.find("\r\n\r\n");
        require(head_end != std::string_view::npos, "an answer has a whole head");
        const std::string_view head = answers.substr(0, head_end + 2);
        unsigned status = 0;
        std::from_chars(head.data() + 9, head.data() + 12, status);
        answers.remove_prefix(head_end + 4);
        if (status == 100) continue;
        const std::size_t index = statuses.size();
        statuses.push_back(status);
        constexpr std::string_view name = "\r\nContent-Length: ";
        const std::size_t at = head.find(name);
        if (at == std::string_view::npos) continue;
        std::size_t size = 0;
        std::from_chars(head.data() + at + name.size(), head.data() + head.size(), size);
        const bool is_refusal = index >= requests.size();
        if ((!is_refusal && requests[index].is_head) || (is_refusal && answers.empty())) continue;
        require(size <= answers.size(), "an answer has a whole body");
        answers.remove_prefix(size);
    }
    return statuses;
}

}  // namespace

void run_input(std::string_view input) {
    static gateway served;
    const auto reading = read_connection(cut_whole(input));
    const auto whole = served.serve(cut_whole(input));
    const auto statuses = read_answers(whole.answers, reading.requests);

    // Every handled request is one of those that the parser reads from the same bytes, in their order.
    std::size_t next = 0;
    for (const std::string& handled : whole.handled) {
        while (next < reading.requests.size() && reading.requests[next].handled_text != handled)
            ++next;
        require(next < reading.requests.size(), "only requests of the connection reach a handler, in their order");
        ++next;
    }
    require(statuses.size() <= reading.requests.size() + 1,
            "each request has at most one answer, and a refused one ends the connection");
    require(statuses.size() >= reading.requests.size(), "each complete request has an answer");

    const auto pieces = served.serve(cut_by_seed(input, std::hash<std::string_view>()(input)));
    // A head that is refused before its body has arrived ends the connection, so that fewer requests may follow.
    // Whether a head or a trailer exceeds header_max_bytes may depend on how it arrives:
    // a line that was read before is not counted.
    const bool can_exceed_limit = input.size() > header_max_bytes;
    const std::size_t common = std::min(pieces.handled.size(), whole.handled.size());
    require(std::equal(pieces.handled.begin(), pieces.handled.begin() + static_cast<std::ptrdiff_t>(common),
                       whole.handled.begin()),
            "the same requests reach the handler whichever way the bytes arrive");
    require(can_exceed_limit || common == pieces.handled.size(), "bytes in pieces add no request");
    const bool all_succeeded = std::ranges::all_of(statuses, [](unsigned status) { return status == 200; });
    if (all_succeeded && !can_exceed_limit) {
        require(pieces.handled == whole.handled, "the same requests reach the handler whichever way the bytes arrive");
    }
}

}  // namespace fencegate::fuzz
