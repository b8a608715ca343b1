#pragma once

#include <lockcore/ports.hpp>
#include <redis/connection.hpp>

#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <string>

namespace lockcore::redis {

/// One shard's ear at one node: a connection of its own, shared by all resources, subscribed to the one channel on
/// which the node tells of leases that ended (release.lua). A message that is lost costs a waiter no more than
/// wait_queue::look_again.
///
/// Threads: the thread of `io`. Lifetime: by shared_ptr; stop() before the io_context ends.
class wake_feed : public std::enable_shared_from_this<wake_feed> {
  public:
    /// `ended`: the nonce of a lease, and a resource that it covered.
    using listener = std::function<void(const nonce& ended, std::string_view resource)>;

    wake_feed(boost::asio::io_context& io, const node_address& address, std::string mark, listener on_end);

    void start();
    void stop();

    static constexpr milliseconds reconnect_every{1'000};

  private:
    void subscribe();
    void message(const redisReply& r);

    std::string mark_;
    listener on_end_;
    std::shared_ptr<connection> connection_;
    boost::asio::steady_timer delay_;
    bool stopped_ = false;
};

}  // namespace lockcore::redis
