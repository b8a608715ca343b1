#pragma once

#include <lockcore/types.hpp>
#include <redis/connection.hpp>

#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <string>

namespace lockcore::redis {

/// Subscribes to one node's lease-end messages for one shard: one connection and one channel for all resources
/// (release.lua). A lost message delays a waiter by wait_queue::retry_delay_max at most. The server has nothing to send
/// while no lease ends, so it is asked for an answer each keepalive_interval; without one the connection is opened anew.
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
