#include <gateway/pg/connection/session_slot.hpp>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>

using namespace fencegate;
using namespace fencegate::pg;
using namespace std::chrono_literals;

namespace {

/// Whether the answer after a cut of the connection says that nothing was changed.
bool says_unchanged_if_cut(session_slot& slot) {
    slot.cut_if_overdue(std::chrono::steady_clock::now());
    return slot.known_not_committed();
}

/// A server that lets one client log in and ends the connection at its first statement.
class ends_at_first_statement {
  public:
    ends_at_first_statement() : acceptor_(io_, {boost::asio::ip::address_v4::loopback(), 0}) {
        thread_ = std::jthread([this] { serve(acceptor_.accept()); });
    }

    std::string conninfo() const {
        return "host=127.0.0.1 user=u dbname=d sslmode=disable gssencmode=disable port=" +
               std::to_string(acceptor_.local_endpoint().port());
    }

  private:
    static void serve(boost::asio::ip::tcp::socket client) {
        std::array<char, 1024> received;
        client.read_some(boost::asio::buffer(received));  // the startup message
        const std::string version(
            "server_version\0"
            "15.0\0",
            20);
        const std::string logged_in =
            std::string("R\0\0\0\x08\0\0\0\0S\0\0\0\x18", 14) + version + std::string("Z\0\0\0\x05I", 6);
        boost::asio::write(client, boost::asio::buffer(logged_in));
        boost::system::error_code ended;
        client.read_some(boost::asio::buffer(received), ended);
    }

    boost::asio::io_context io_;
    boost::asio::ip::tcp::acceptor acceptor_;
    std::jthread thread_;
};

}  // namespace

TEST(session_slot, cut_after_commit_was_sent_leaves_outcome_open) {
    postgres_config cfg;
    session_slot slot(cfg);
    const auto overdue = std::chrono::steady_clock::now() - 1h;
    slot.begin_work(overdue);
    EXPECT_TRUE(says_unchanged_if_cut(slot));
    slot.begin_work(overdue);
    slot.begin_commit();
    EXPECT_FALSE(says_unchanged_if_cut(slot)) << "also after the answer to COMMIT, which the callers do not have yet";
    slot.begin_work(overdue);
    slot.begin_commit();
    slot.begin_transaction();
    EXPECT_TRUE(says_unchanged_if_cut(slot)) << "the callers of the transaction before were answered";
}

TEST(session_slot, only_a_higher_floor_is_required) {
    using lockcore::epoch;
    static std::uint64_t floor = 7;  // that of the process stays
    EXPECT_TRUE(session_slot::require_floor(epoch{floor}));
    EXPECT_FALSE(session_slot::require_floor(epoch{floor}));
    EXPECT_FALSE(session_slot::require_floor(epoch{floor - 1}));
    EXPECT_TRUE(session_slot::require_floor(epoch{++floor}));
    ++floor;
}

TEST(session_slot, nothing_is_overdue_after_a_failed_connect) {
    const ends_at_first_statement server;
    postgres_config cfg;
    cfg.conninfo = server.conninfo();
    session_slot slot(cfg);
    EXPECT_THROW(slot.get(), session_lost);
    slot.cut_if_overdue(std::chrono::steady_clock::now() + 1h);
    EXPECT_FALSE(slot.was_cut());
}
