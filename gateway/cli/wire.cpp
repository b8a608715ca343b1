#include <gateway/cli/wire.hpp>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <fcntl.h>

#include <array>

namespace fencegate::cli {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;

namespace {

constexpr std::uint64_t answer_bytes_max = 64 << 20;

std::string type_of(std::string_view header) {
    return std::string(header.substr(0, header.find_first_of("; ")));
}

}  // namespace

struct wire::connection {
    connection(asio::io_context& io, gateway_address where) : at(std::move(where)), stream(io) {}

    [[noreturn]] void fail(const error_code& why) const {
        const bool late = why == beast::error::timeout;
        throw unreachable("no answer from http://" + at.authority + ": " + (late ? "the time is up" : why.message()));
    }

    asio::awaitable<void> open() {
        error_code ec;
        tcp::resolver resolver(stream.get_executor());
        const auto found = resolver.resolve(at.host, at.port, ec);
        if (ec) fail(ec);
        co_await stream.async_connect(found, asio::redirect_error(asio::use_awaitable, ec));
        if (ec) fail(ec);
        // Asio leaves it open across exec, and a program that inherits it would hold the lease in our place.
        if (fcntl(stream.socket().native_handle(), F_SETFD, FD_CLOEXEC) != 0)
            fail(error_code(errno, boost::system::system_category()));
        stream.socket().set_option(tcp::no_delay(true), ec);
    }

    gateway_address at;
    beast::tcp_stream stream;
    beast::flat_buffer received;
    http::response_parser<http::buffer_body> parser;
    event_reader events;
};

wire::wire(asio::io_context& io, gateway_address at) : connection_(std::make_unique<connection>(io, std::move(at))) {}

wire::~wire() = default;

asio::awaitable<answer> wire::send(request what, std::chrono::milliseconds within) {
    connection& to = *connection_;
    to.stream.expires_after(within);
    co_await to.open();

    http::request<http::string_body> out;
    out.version(11);
    out.method_string(what.method);
    out.target(to.at.base + what.target);
    out.set(http::field::host, to.at.authority);
    out.set(http::field::user_agent, "fencegate");
    out.set(http::field::accept, what.accept);
    if (!what.api_key.empty()) out.set(http::field::authorization, "Bearer " + what.api_key);
    if (!what.body.empty()) out.set(http::field::content_type, "application/json");
    out.body() = std::move(what.body);
    out.prepare_payload();
    error_code ec;
    co_await http::async_write(to.stream, out, asio::redirect_error(asio::use_awaitable, ec));
    if (ec) to.fail(ec);

    to.parser.body_limit(boost::none);
    co_await http::async_read_header(to.stream, to.received, to.parser, asio::redirect_error(asio::use_awaitable, ec));
    if (ec) to.fail(ec);
    answer got;
    got.status = to.parser.get().result_int();
    got.type = type_of(to.parser.get()[http::field::content_type]);
    if (got.streams()) {
        to.stream.expires_never();
        co_return got;
    }
    std::array<char, 16'384> piece{};
    while (!to.parser.is_done()) {
        auto& body = to.parser.get().body();
        body.data = piece.data();
        body.size = piece.size();
        co_await http::async_read(to.stream, to.received, to.parser, asio::redirect_error(asio::use_awaitable, ec));
        if (ec && ec != http::error::need_buffer) to.fail(ec);
        got.body.append(piece.data(), piece.size() - body.size);
        if (got.body.size() > answer_bytes_max)
            throw unreachable("the answer of http://" + to.at.authority + " is too long");
    }
    co_return got;
}

asio::awaitable<std::optional<stream_event>> wire::next_event() {
    connection& from = *connection_;
    std::array<char, 4'096> piece{};
    for (;;) {
        auto event = from.events.next();
        if (event || from.parser.is_done()) co_return event;
        auto& body = from.parser.get().body();
        body.data = piece.data();
        body.size = piece.size();
        error_code ec;
        co_await http::async_read_some(from.stream, from.received, from.parser,
                                       asio::redirect_error(asio::use_awaitable, ec));
        from.events.add({piece.data(), piece.size() - body.size});
        if (ec && ec != http::error::need_buffer) {
            event = from.events.next();
            co_return event;
        }
    }
}

bool wire::has_unread() {
    error_code ignored;
    return connection_->stream.socket().available(ignored) > 0;
}

void wire::finish() {
    error_code ignored;
    connection_->stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
}

}  // namespace fencegate::cli
