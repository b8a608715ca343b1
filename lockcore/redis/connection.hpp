#pragma once

#include <lockcore/config.hpp>
#include <lockcore/types.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct redisAsyncContext;
struct redisReply;

namespace lockcore::redis {

/// The text of a reply that has one; empty otherwise.
std::string_view text_of(const redisReply* r);

/// One connection to a node at a time. A reconnect is a *new* connection: what was in flight is answered with null, and
/// nothing is sent again (docs/protocol.md R9).
///
/// Threads: the thread of `io`. Lifetime: by shared_ptr; close() before the io_context ends.
class connection : public std::enable_shared_from_this<connection> {
  public:
    /// Null: the connection broke before the answer came.
    using reply_handler = std::function<void(const redisReply*)>;
    struct events {
        std::function<void()> connected;
        /// It failed or broke: nothing will be answered any more. Never called from inside another call of this class.
        std::function<void(const std::string& why)> lost;
        /// Of a subscription: whatever the server sent, an error too.
        std::function<void(const redisReply&)> message;
    };

    connection(boost::asio::io_context& io, const node_address& address, events on);
    ~connection();

    /// Looks the name up and tries its addresses one after the other.
    void open();
    /// Gives the connection up, with lost(why) to follow.
    void drop(const std::string& why);
    /// As drop, for good and without a word.
    void close();

    bool is_open() const { return context_ != nullptr; }
    /// Counts connections, so that what belongs to an older one is told apart.
    std::uint64_t generation() const { return generation_; }
    const node_address& address() const { return address_; }

    /// Sends one command, as RESP. False: not sent; the handler will not be called.
    bool send(const std::string& command, reply_handler on_reply);
    /// Subscribes to a channel; the handler of `events::message` gets all that comes. Nothing else may be sent any
    /// more.
    void subscribe(std::string_view channel);
    /// AUTH, where the configuration has a password.
    void authenticate();

  private:
    void try_next(const std::string& why_not);
    void connect_to(const boost::asio::ip::tcp::endpoint& endpoint);
    void tell_lost(std::string why);

    boost::asio::io_context& io_;
    const node_address& address_;
    events on_;
    boost::asio::ip::tcp::resolver resolver_;
    std::vector<boost::asio::ip::tcp::endpoint> candidates_;  ///< Still to be tried, the next one last.
    redisAsyncContext* context_ = nullptr;
    std::uint64_t generation_ = 0;
    bool closed_ = false;
};

}  // namespace lockcore::redis
