// HTTPS over the loopback interface: the stream of a connection, and a server whose certificate and keys are replaced.
#include <gateway/http/codec/json_io.hpp>
#include <gateway/http/transport/connection_stream.hpp>
#include <gateway/http/transport/server.hpp>
#include <gateway/runtime/background.hpp>

#include "self_signed.hpp"

#include <gtest/gtest.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <thread>

namespace fencegate::http {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using tls_client = asio::ssl::stream<asio::ip::tcp::socket>;
using result_of_handshake = connection_stream::handshake_result;

tls_config config_of(const self_signed& pair) {
    tls_config cfg;
    cfg.certificates = pair.certificate;
    cfg.key = pair.key;
    return cfg;
}

std::shared_ptr<const tls_context> context_of(const tls_config& cfg) {
    const auto made = tls_context::create(cfg);
    EXPECT_TRUE(made) << made.error().detail;
    return *made;
}

/// A client that trusts `server` and, if given, presents `own`.
asio::ssl::context trusting(const self_signed& server, const self_signed* own = nullptr) {
    asio::ssl::context context(asio::ssl::context::tls_client);
    context.add_certificate_authority(asio::buffer(server.certificate));
    context.set_verify_mode(asio::ssl::verify_peer);
    if (own != nullptr) {
        context.use_certificate(asio::buffer(own->certificate), asio::ssl::context::pem);
        context.use_private_key(asio::buffer(own->key), asio::ssl::context::pem);
    }
    return context;
}

/// Both ends of a connection: the server's is a connection_stream on a loop that the test runs.
class tls_stream : public testing::Test {
  protected:
    void connect(const tls_context* tls) {
        asio::ip::tcp::acceptor acceptor(client_io_, {asio::ip::make_address("127.0.0.1"), 0});
        tcp_socket accepted(io_);
        client_.emplace(client_io_);
        client_->connect(acceptor.local_endpoint());
        accepted.assign(asio::ip::tcp::v4(), acceptor.accept().release());
        stream_ = std::make_unique<connection_stream>(std::move(accepted), tls);
    }
    /// Performs the handshake of both sides.
    result_of_handshake shake_hands(asio::ssl::context& client_context) {
        secured_.emplace(std::move(*client_), client_context);
        auto result = result_of_handshake::failed;
        asio::co_spawn(io_, stream_->accept_tls(),
                       [&](const std::exception_ptr&, result_of_handshake got) { result = got; });
        std::thread server([this] { io_.run(); });
        secured_->handshake(asio::ssl::stream_base::client, client_failure_);
        server.join();
        io_.restart();
        return result;
    }

    asio::io_context io_, client_io_;
    std::optional<asio::ip::tcp::socket> client_;
    std::optional<tls_client> secured_;
    boost::system::error_code client_failure_;
    std::unique_ptr<connection_stream> stream_;
    const self_signed server_pair_;
};

TEST_F(tls_stream, client_certificate_has_subject_and_names) {
    const self_signed caller(EVP_EC_gen("P-256"), 3600, "Bestellung, Größe+1",
                             "DNS:orders.shop.test,URI:spiffe://shop.test/orders,email:a@shop.test,DNS:second.test");
    tls_config cfg = config_of(server_pair_);
    cfg.client_authorities = caller.certificate;
    const auto tls = context_of(cfg);
    connect(tls.get());
    auto context = trusting(server_pair_, &caller);
    ASSERT_EQ(shake_hands(context), result_of_handshake::done);
    ASSERT_NE(stream_->certificate(), nullptr);
    EXPECT_EQ(stream_->certificate()->subject, "CN=Bestellung\\, Größe\\+1");
    EXPECT_EQ(stream_->certificate()->dns_names, (std::vector<std::string>{"orders.shop.test", "second.test"}));
    EXPECT_EQ(stream_->certificate()->uris, std::vector<std::string>{"spiffe://shop.test/orders"});
}

TEST_F(tls_stream, no_client_certificate_without_authority) {
    const self_signed caller;
    const auto tls = context_of(config_of(server_pair_));
    connect(tls.get());
    auto context = trusting(server_pair_, &caller);
    ASSERT_EQ(shake_hands(context), result_of_handshake::done);
    EXPECT_EQ(stream_->certificate(), nullptr);
}

TEST_F(tls_stream, client_certificate_of_other_authority_fails) {
    const self_signed caller;
    tls_config cfg = config_of(server_pair_);
    cfg.client_authorities = server_pair_.certificate;
    const auto tls = context_of(cfg);
    connect(tls.get());
    auto context = trusting(server_pair_, &caller);
    EXPECT_EQ(shake_hands(context), result_of_handshake::failed);
    EXPECT_EQ(stream_->certificate(), nullptr);
}

TEST_F(tls_stream, write_to_full_socket_keeps_at_most_one_record) {
    const auto tls = context_of(config_of(server_pair_));
    connect(tls.get());
    auto context = trusting(server_pair_);
    ASSERT_EQ(shake_hands(context), result_of_handshake::done);
    const std::string text(1 << 20, 'x');
    std::size_t accepted = 0, unsent_max = 0;
    for (;;) {
        const connection_stream::message_parts parts{asio::buffer(text)};
        const auto count = stream_->try_write(parts);
        ASSERT_TRUE(count);
        unsent_max = std::max(unsent_max, stream_->unsent());
        if (*count == 0) break;
        accepted += *count;
    }
    EXPECT_LE(unsent_max, 17U << 10U);
    std::thread reader([&] {
        std::vector<char> all(accepted);
        asio::read(*secured_, asio::buffer(all));
        EXPECT_EQ(std::ranges::count(all, 'x'), static_cast<std::ptrdiff_t>(accepted));
    });
    while (stream_->unsent() > 0) {
        std::this_thread::yield();
        ASSERT_TRUE(stream_->try_write({}));
    }
    reader.join();
}

TEST_F(tls_stream, write_of_short_text_to_full_socket_accepts_nothing) {
    const auto tls = context_of(config_of(server_pair_));
    connect(tls.get());
    auto context = trusting(server_pair_);
    ASSERT_EQ(shake_hands(context), result_of_handshake::done);
    const std::string text(100, 'x');
    std::optional<std::size_t> count;
    do {
        const connection_stream::message_parts parts{asio::buffer(text)};
        count = stream_->try_write(parts);
        ASSERT_TRUE(count);
        // What is encrypted and not sent could not be rendered again when it has expired.
        ASSERT_EQ(stream_->unsent(), 0U);
    } while (*count > 0);
}

TEST_F(tls_stream, close_sends_close_notify) {
    const auto tls = context_of(config_of(server_pair_));
    connect(tls.get());
    auto context = trusting(server_pair_);
    ASSERT_EQ(shake_hands(context), result_of_handshake::done);
    stream_->close();
    char byte = 0;
    boost::system::error_code ec;
    secured_->read_some(asio::buffer(&byte, 1), ec);
    EXPECT_EQ(ec, asio::error::eof) << ec.message();
}

awaitable_response answer(request) {
    co_return json_response("{}");
}

class silent_observer final : public request_observer {
  public:
    void on_served(const served_request&) noexcept override {}
};

/// Sends a request with a key over an open connection. Out: the status line.
std::string ask(tls_client& client, const std::string& key) {
    asio::write(client, asio::buffer("GET /secured HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: " + key + "\r\n\r\n"));
    std::string received(4096, '\0');
    received.resize(client.read_some(asio::buffer(received)));
    return received.substr(0, received.find("\r\n"));
}

TEST(tls_server, reload_replaces_keys_and_certificate_of_new_connections) {
    const auto auth_of = [](const char* sha256) {
        auth_config out;
        auto& key = out.api_keys.emplace_back();
        key.principal = "p";
        key.key_sha256 = sha256;
        key.rights.scopes = {scope::leases};
        return out;
    };
    // SHA-256 of "first" and of "second".
    const auth_config first = auth_of("a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e");
    const auth_config second = auth_of("16367aacb67a4a017c8da8ab95682ccb390863780f7114dda0a0e0c55644c7c4");
    const self_signed old_pair, new_pair;
    memory_budgets memory(1 << 20, 1 << 20);
    silent_observer observer;
    http_config cfg;
    cfg.port = 0;
    runtime::io_threads threads(2);
    std::vector<route> routes;
    routes.push_back({method::get, "/secured", scope::leases, answer, false});
    limits_config any_number;
    any_number.address.failed_authentications_per_minute = 0;
    limits::limiter limiter(any_number, {100, 100, 100}, true);
    server served(cfg, first, std::move(routes), threads.contexts(), memory, limiter, observer,
                  context_of(config_of(old_pair)));
    ASSERT_TRUE(served.listen());
    threads.start();
    served.start();
    asio::io_context io;
    const asio::ip::tcp::endpoint address(asio::ip::make_address("127.0.0.1"), served.port());
    const auto connected = [&](const self_signed& trusted, boost::system::error_code& ec) {
        auto context = trusting(trusted);
        auto client = std::make_unique<tls_client>(io, context);
        client->next_layer().connect(address);
        client->handshake(asio::ssl::stream_base::client, ec);
        return client;
    };
    boost::system::error_code ec;
    const auto open = connected(old_pair, ec);
    ASSERT_FALSE(ec) << ec.message();
    EXPECT_EQ(ask(*open, "first"), "HTTP/1.1 200 OK");
    EXPECT_EQ(ask(*open, "second"), "HTTP/1.1 401 Unauthorized");
    ASSERT_TRUE(served.reload(second, cfg, context_of(config_of(new_pair))));
    const auto until = std::chrono::steady_clock::now() + 10s;
    std::string status;
    while (status != "HTTP/1.1 200 OK" && std::chrono::steady_clock::now() < until)
        status = ask(*open, "second");
    EXPECT_EQ(status, "HTTP/1.1 200 OK");
    EXPECT_EQ(ask(*open, "first"), "HTTP/1.1 401 Unauthorized");
    std::unique_ptr<tls_client> later;
    do {  // each thread takes the new certificate at its own time
        ec = {};
        later = connected(new_pair, ec);
    } while (ec && std::chrono::steady_clock::now() < until);
    EXPECT_FALSE(ec) << ec.message();
    served.stop(std::chrono::steady_clock::now() + 1s);
    threads.stop();
}

}  // namespace
}  // namespace fencegate::http
