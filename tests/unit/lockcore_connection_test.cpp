// The connection to a node whose host name has several addresses, or a slow lookup; and its password. getaddrinfo() of
// this program answers the name nodes.test itself.
#include <lockcore/probe.hpp>
#include <redis/connection.hpp>

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include <dlfcn.h>
#include <netdb.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using boost::asio::ip::tcp;
using namespace std::chrono_literals;

constexpr const char* test_name = "nodes.test";
/// What a lookup of `test_name` finds, and how long it takes. Changed only while no lookup runs.
std::vector<std::string> found_addresses;
std::chrono::milliseconds lookup_time{0};
std::atomic<int> lookups{0};

}  // namespace

extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** out) {
    static const auto real = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
    if (name == nullptr || std::string_view(name) != test_name) return real(name, service, hints, out);
    ++lookups;
    std::this_thread::sleep_for(lookup_time);  // a name server that answers late
    addrinfo** end = out;
    for (const std::string& address : found_addresses) {
        if (const int error = real(address.c_str(), service, hints, end); error != 0) return error;
        end = &(*end)->ai_next;
    }
    return found_addresses.empty() ? EAI_NONAME : 0;
}

namespace {

/// Answers the same, at first +OK, to all that it reads, at 127.0.0.1.
class answering_server {
  public:
    std::string answer = "+OK\r\n";
    std::string received;

    explicit answering_server(boost::asio::io_context& io)
        : acceptor_(io, {boost::asio::ip::make_address("127.0.0.1"), 0}) {
        accept();
    }
    unsigned short port() const { return acceptor_.local_endpoint().port(); }
    void end_connections() {
        for (const auto& c : clients_)
            c->socket.close();
    }

  private:
    struct client {
        explicit client(tcp::socket accepted) : socket(std::move(accepted)) {}
        tcp::socket socket;
        std::array<char, 512> received{};
    };

    void accept() {
        acceptor_.async_accept([this](boost::system::error_code e, tcp::socket socket) {
            if (e) return;
            clients_.push_back(std::make_shared<client>(std::move(socket)));
            serve(clients_.back());
            accept();
        });
    }
    void serve(const std::shared_ptr<client>& c) {
        c->socket.async_read_some(boost::asio::buffer(c->received),
                                  [this, c](boost::system::error_code e, std::size_t size) {
                                      if (e) return;
                                      received.append(c->received.data(), size);
                                      boost::asio::write(c->socket, boost::asio::buffer(answer), e);
                                      serve(c);
                                  });
    }

    tcp::acceptor acceptor_;
    std::vector<std::shared_ptr<client>> clients_;
};

/// An address that swallows packets: the queue of its listening socket is full.
class silent_address {
  public:
    silent_address(boost::asio::io_context& io, const char* address, unsigned short port) : acceptor_(io) {
        const tcp::endpoint endpoint(boost::asio::ip::make_address(address), port);
        acceptor_.open(endpoint.protocol());
        acceptor_.set_option(tcp::acceptor::reuse_address(true));
        acceptor_.bind(endpoint);
        acceptor_.listen(0);
        queued_.reserve(queued_max);
        while (queued_.size() < queued_max) {
            queued_.emplace_back(io);
            queued_.back().async_connect(endpoint, [](boost::system::error_code) {});
        }
    }

  private:
    static constexpr std::size_t queued_max = 4;
    tcp::acceptor acceptor_;
    std::vector<tcp::socket> queued_;
};

class lockcore_connection : public testing::Test {
  protected:
    void SetUp() override {
        lookups = 0;
        lookup_time = 0ms;
        address_ = {"n1", test_name, server_.port(), {}, {}, {}, {}};
        lockcore::redis::connection::event_handlers handlers;
        handlers.connected = [this] {
            connection_->send("PING\r\n", [this](const lockcore::redis::reply* r) { answered_ = r != nullptr; });
        };
        handlers.lost = [this](const lockcore::redis::connection::loss& what) {
            lost_ = what.reason;
            refused_ = what.refused;
        };
        connection_ = std::make_shared<lockcore::redis::connection>(io_, address_, std::move(handlers));
    }
    void TearDown() override { connection_->close(); }

    /// Runs until `done` or until the time is over. Out: done().
    bool run_until(std::chrono::milliseconds limit, const std::function<bool()>& done) {
        const auto end = std::chrono::steady_clock::now() + limit;
        io_.restart();
        while (!done() && io_.run_one_until(end) != 0) {
        }
        return done();
    }
    /// Begins an attempt, which its owner gives up after `limit`. Out: whether the node has answered.
    bool attempt(std::chrono::milliseconds limit) {
        answered_ = false;
        lost_.clear();
        connection_->open();
        if (run_until(limit, [this] { return answered_ || !lost_.empty(); })) return answered_;
        connection_->drop("does not answer");
        run_until(1s, [this] { return !lost_.empty(); });
        return false;
    }

    boost::asio::io_context io_{1};
    answering_server server_{io_};
    lockcore::node_address address_;
    std::shared_ptr<lockcore::redis::connection> connection_;
    bool answered_ = false, refused_ = false;
    std::string lost_;
};

TEST_F(lockcore_connection, lookup_slower_than_attempts_is_of_use_to_a_later_one) {
    found_addresses = {"127.0.0.1"};
    lookup_time = 1s;
    int attempts = 1;
    while (!attempt(300ms) && attempts < 20)
        ++attempts;
    EXPECT_TRUE(answered_);
    EXPECT_GE(attempts, 2) << "the lookup was not slower than an attempt";
    EXPECT_EQ(lookups, 1);
}

TEST_F(lockcore_connection, lookup_that_ends_between_attempts_is_used_by_the_next) {
    found_addresses = {"127.0.0.1"};
    lookup_time = 150ms;
    EXPECT_FALSE(attempt(50ms));
    run_until(400ms, [] { return false; });
    lookup_time = 10s;
    EXPECT_TRUE(attempt(1s));
    EXPECT_EQ(lookups, 1);
}

TEST_F(lockcore_connection, address_behind_one_that_swallows_packets_is_reached) {
    const silent_address silent(io_, "127.0.0.2", server_.port());
    run_until(50ms, [] { return false; });
    found_addresses = {"127.0.0.2", "127.0.0.3", "127.0.0.1"};  // nothing listens at the second one
    EXPECT_FALSE(attempt(100ms)) << "the first address answers";
    EXPECT_TRUE(attempt(1s));
    EXPECT_EQ(lookups, 1);
}

TEST_F(lockcore_connection, name_is_resolved_anew_after_an_address_has_answered) {
    found_addresses = {"127.0.0.1", "127.0.0.2"};
    ASSERT_TRUE(attempt(1s));
    server_.end_connections();
    ASSERT_TRUE(run_until(1s, [this] { return !lost_.empty(); }));
    EXPECT_TRUE(attempt(1s));
    EXPECT_EQ(lookups, 2);
}

TEST_F(lockcore_connection, probe_reaches_address_behind_one_that_swallows_packets) {
    const silent_address silent(io_, "127.0.0.2", server_.port());
    run_until(50ms, [] { return false; });
    found_addresses = {"127.0.0.2", "127.0.0.1"};
    lockcore::config settings;
    settings.nodes = {address_};
    settings.node_dead_after = 200ms;
    io_.restart();
    std::jthread server([this] { io_.run(); });
    const auto reports = lockcore::probe_nodes(settings);
    io_.stop();
    ASSERT_EQ(reports.size(), 1U);
    EXPECT_EQ(reports[0].detail.find("can't be reached"), std::string::npos) << reports[0].detail;
}

TEST_F(lockcore_connection, name_without_addresses_is_lost_with_the_reason) {
    found_addresses.clear();
    EXPECT_FALSE(attempt(1s));
    EXPECT_TRUE(lost_.starts_with("its host name can't be resolved: ")) << lost_;
    found_addresses = {"127.0.0.1"};
    EXPECT_TRUE(attempt(1s));
}

TEST_F(lockcore_connection, password_file_is_read_for_each_connection) {
    found_addresses = {"127.0.0.1"};
    const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "lockcore_connection.password";
    address_.username = "gateway";
    address_.password_file = file;
    for (const char* const written : {"first\n", "the second"}) {
        std::ofstream(file) << written;
        server_.received.clear();
        ASSERT_TRUE(attempt(5s)) << lost_;
        const std::string password(written, std::strcspn(written, "\n"));
        EXPECT_TRUE(server_.received.starts_with("*3\r\n$4\r\nAUTH\r\n$7\r\ngateway\r\n$" +
                                                 std::to_string(password.size()) + "\r\n" + password + "\r\nPING"))
            << server_.received;
        lost_.clear();
        server_.end_connections();
        ASSERT_TRUE(run_until(5s, [this] { return !lost_.empty(); }));
        EXPECT_FALSE(refused_);
    }
    const std::vector<std::pair<std::string, std::string>> unusable{
        {"\n", "it is empty"}, {std::string(4097, 'p'), "it is longer than 4096 bytes"}};
    for (const auto& [written, reason] : unusable) {
        std::ofstream(file) << written;
        EXPECT_FALSE(attempt(5s));
        EXPECT_EQ(lost_, "its password can't be read: cannot read " + file.string() + ": " + reason);
        EXPECT_TRUE(refused_);
    }
    std::filesystem::remove(file);
    EXPECT_FALSE(attempt(5s));
    EXPECT_EQ(lost_, "its password can't be read: cannot read " + file.string() + ": No such file or directory");
    ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
    EXPECT_FALSE(attempt(5s));
    EXPECT_EQ(lost_, "its password can't be read: cannot read " + file.string() + ": it is not a regular file");
    std::filesystem::remove(file);
}

TEST_F(lockcore_connection, refused_password_is_named_and_nothing_else_is_sent) {
    found_addresses = {"127.0.0.1"};
    address_.password = "wrong";
    server_.answer = "-WRONGPASS invalid username-password pair\r\n";
    EXPECT_FALSE(attempt(5s));
    EXPECT_EQ(lost_, "refuses the credentials: WRONGPASS invalid username-password pair");
    EXPECT_TRUE(refused_);
    EXPECT_EQ(server_.received, "*2\r\n$4\r\nAUTH\r\n$5\r\nwrong\r\n");
}

}  // namespace
