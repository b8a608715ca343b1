#include <gateway/cli/wire.hpp>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>

#include <fcntl.h>

#include <array>

namespace fencegate::cli {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace ssl = asio::ssl;
using boost::system::error_code;
using tcp = asio::ip::tcp;

namespace {

constexpr std::uint64_t answer_bytes_max = 64 << 20;

using body_parser = http::response_parser<http::buffer_body>;

template <typename Stream>
asio::awaitable<error_code> read_head(Stream& from, beast::flat_buffer& received, body_parser& into) {
    error_code ec;
    co_await http::async_read_header(from, received, into, asio::redirect_error(asio::use_awaitable, ec));
    co_return ec;
}

/// Some of the body; the parser's buffer being full is no error.
template <typename Stream>
asio::awaitable<error_code> read_some(Stream& from, beast::flat_buffer& received, body_parser& into) {
    error_code ec;
    co_await http::async_read_some(from, received, into, asio::redirect_error(asio::use_awaitable, ec));
    co_return ec == http::error::need_buffer ? error_code() : ec;
}

std::string type_of(std::string_view header) {
    return std::string(header.substr(0, header.find_first_of("; ")));
}

}  // namespace

trust make_trust(const std::filesystem::path& certificates) {
    auto out = std::make_shared<ssl::context>(ssl::context::tls_client);
    error_code ec;
    out->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
    out->set_verify_mode(ssl::verify_peer);
    if (certificates.empty())
        out->set_default_verify_paths(ec);
    else
        out->load_verify_file(certificates.string(), ec);
    if (ec) throw std::runtime_error(certificates.string() + " has no certificates that can be read: " + ec.message());
    return out;
}

struct wire::connection {
    connection(asio::io_context& io, gateway_address where, trust whom)
        : at(std::move(where)), believed(std::move(whom)), stream(io) {
        if (at.tls) secured.emplace(stream, *believed);
    }

    [[noreturn]] void fail(const error_code& why) const {
        const bool late = why == beast::error::timeout;
        throw unreachable("no answer from " + at.origin() + ": " + (late ? "the time is up" : why.message()));
    }

    // Chosen here and not where they are waited for: GCC 12 destroys both sides of a ?: behind co_await.
    asio::awaitable<error_code> read_head() {
        return secured ? cli::read_head(*secured, received, parser) : cli::read_head(stream, received, parser);
    }

    asio::awaitable<error_code> read_more() {
        return secured ? read_some(*secured, received, parser) : read_some(stream, received, parser);
    }

    asio::awaitable<void> secure() {
        error_code ec;
        SSL_set_tlsext_host_name(secured->native_handle(), at.host.c_str());
        secured->set_verify_callback(ssl::host_name_verification(at.host));
        co_await secured->async_handshake(ssl::stream_base::client, asio::redirect_error(asio::use_awaitable, ec));
        const long fault = SSL_get_verify_result(secured->native_handle());
        if (ec && fault != X509_V_OK) {
            throw unreachable("the certificate of " + at.origin() +
                              " is not to be trusted: " + X509_verify_cert_error_string(fault));
        }
        if (ec) fail(ec);
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
        if (secured) co_await secure();
    }

    gateway_address at;
    trust believed;
    beast::tcp_stream stream;
    std::optional<beast::ssl_stream<beast::tcp_stream&>> secured;
    beast::flat_buffer received;
    body_parser parser;
    event_reader events;
};

wire::wire(asio::io_context& io, gateway_address at, trust believed)
    : connection_(std::make_unique<connection>(io, std::move(at), std::move(believed))) {}

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
    if (!what.last_event_id.empty()) out.set("Last-Event-ID", what.last_event_id);
    if (!what.idempotency_key.empty()) out.set("Idempotency-Key", what.idempotency_key);
    if (!what.body.empty()) out.set(http::field::content_type, "application/json");
    out.body() = std::move(what.body);
    out.prepare_payload();
    error_code ec;
    if (to.secured)
        co_await http::async_write(*to.secured, out, asio::redirect_error(asio::use_awaitable, ec));
    else
        co_await http::async_write(to.stream, out, asio::redirect_error(asio::use_awaitable, ec));
    if (ec) to.fail(ec);

    to.parser.body_limit(boost::none);
    ec = co_await to.read_head();
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
        ec = co_await to.read_more();
        if (ec) to.fail(ec);
        got.body.append(piece.data(), piece.size() - body.size);
        if (got.body.size() > answer_bytes_max) throw unreachable("the answer of " + to.at.origin() + " is too long");
    }
    co_return got;
}

asio::awaitable<std::optional<stream_event>> wire::next_event(std::chrono::milliseconds silence) {
    connection& from = *connection_;
    std::array<char, 4'096> piece{};
    for (;;) {
        auto event = from.events.next();
        if (event || from.parser.is_done()) co_return event;
        auto& body = from.parser.get().body();
        body.data = piece.data();
        body.size = piece.size();
        if (silence.count() > 0) from.stream.expires_after(silence);
        const error_code ec = co_await from.read_more();
        from.events.add({piece.data(), piece.size() - body.size});
        if (ec) {
            event = from.events.next();
            co_return event;
        }
    }
}

const std::string& wire::last_event_id() const {
    return connection_->events.last_id();
}

bool wire::has_unread() {
    error_code ignored;
    auto& secured = connection_->secured;
    return connection_->stream.socket().available(ignored) > 0 ||
           (secured && SSL_has_pending(secured->native_handle()) == 1);
}

void wire::finish() {
    error_code ignored;
    connection_->stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
}

}  // namespace fencegate::cli
