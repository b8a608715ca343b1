#pragma once

#include <lockcore/config.hpp>
#include <lockcore/types.hpp>
#include <redis/resp.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockcore::redis {

/// The authenticated connection to a node. A reconnect is a *new* connection: commands in flight are answered with
/// null, and nothing is sent again (docs/protocol.md R9). All commands of a loop turn are sent together, which gives 3
/// to 4 times the throughput of a write() for each command.
///
/// Threads:  the thread of `io`.
/// Lifetime: by shared_ptr; close() before the io_context ends.
class connection : public std::enable_shared_from_this<connection> {
  public:
    /// Gets the reply, valid during the call; null if the connection broke before the reply came.
    using reply_handler = std::function<void(const reply*)>;
    /// Why there is no connection.
    struct loss {
        std::string reason;
        bool refused = false;  ///< The node refused the credentials, or the password can't be read.
    };
    struct event_handlers {
        /// The node has accepted the credentials, if there are any.
        std::function<void()> connected;
        /// The connection failed or broke. Never called from inside another call of this class.
        std::function<void(const loss& what)> lost;
        /// Gets everything that the server sends to a subscription, errors too.
        std::function<void(const reply&)> message;
    };

    connection(boost::asio::io_context& io, const node_address& address, event_handlers handlers);
    ~connection();

    /// Resolves the host name and tries its addresses one after the other. After a drop() it goes on with the addresses
    /// that were not tried, or with the lookup that is under way, so that each is tried however short the attempts are.
    void open();
    /// Closes the connection and then calls the handler `lost` with the reason.
    void drop(const std::string& reason);
    /// Closes the connection. No handler is called any more.
    void close();

    /// Sends one command in RESP. Returns false if it was not sent; the handler is not called then.
    bool send(std::string_view command, reply_handler on_reply);
    /// Subscribes to a channel, whose messages go to the handler `message`. Only ping() may follow.
    void subscribe(std::string_view channel);
    /// Asks for an answer, which goes to the handler `message`. No effect before subscribe().
    void ping();

  private:
    class link;

    void resolve();
    void try_next_address(const std::string& failure_reason);
    void connect_to(const boost::asio::ip::tcp::endpoint& endpoint);
    /// Closes link_, which answers every command in flight with null: at once, or after the running reply handler.
    void close_link();
    void report_lost(loss what);

    boost::asio::io_context& io_;
    const node_address& address_;
    event_handlers handlers_;
    boost::asio::ip::tcp::resolver resolver_;
    std::vector<boost::asio::ip::tcp::endpoint> candidates_;  ///< The addresses not yet tried, in reverse order.
    bool is_resolving_ = false, awaits_addresses_ = false;
    std::shared_ptr<link> link_;
    std::uint64_t generation_ = 0;
    bool closed_ = false;
};

/// Subscribes to one node's lease-end messages for one shard: one connection and one channel for all resources
/// (release.lua). A lost message delays a waiter by wait_queue::retry_delay_max at most. The server has nothing to send
/// while no lease ends, so it is asked for an answer each keepalive_interval; without one the connection is opened
/// anew.
///
/// Threads:  the thread of `io`.
/// Lifetime: by shared_ptr; stop() before the io_context ends.
class release_subscription : public std::enable_shared_from_this<release_subscription> {
  public:
    /// Gets the nonce of a lease that ended, one resource that it covered, and whether it was revoked.
    using listener = std::function<void(const nonce& ended, std::string_view resource, bool revoked)>;

    release_subscription(boost::asio::io_context& io, const node_address& address, std::string wake_mark,
                         listener on_lease_end);

    void start();
    void stop();

    static constexpr milliseconds reconnect_interval{1'000};
    static constexpr milliseconds keepalive_interval{5'000};

  private:
    void open();
    void process_message(const reply& r);
    void schedule_keepalive();

    std::string wake_mark_;
    listener on_lease_end_;
    std::shared_ptr<connection> connection_;
    boost::asio::steady_timer delay_, keepalive_;
    bool stopped_ = false;
    bool is_alive_ = false;  ///< The server sent something, or the connection was begun, after the last question.
};

}  // namespace lockcore::redis
