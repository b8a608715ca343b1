#pragma once

#include <lockcore/config.hpp>
#include <lockcore/events.hpp>
#include <lockcore/node_status.hpp>
#include <lockcore/ports.hpp>
#include <proto/command.hpp>
#include <proto/node_supervisor.hpp>
#include <redis/lease_call.hpp>
#include <redis/script_set.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

struct redisAsyncContext;
struct redisReply;

namespace lockcore::redis {

/// What a link needs to know of its neighbours.
class link_observer {
  public:
    virtual ~link_observer() = default;
    /// The name of another node with this run id; empty if there is none.
    virtual std::string same_server(node_index asking, const std::string& run_id) const = 0;
    /// The highest epoch seen on any node, whether it votes or not: the register may have been restored from an old
    /// backup.
    virtual epoch highest_epoch() const = 0;
    virtual void node_changed(node_index node, event_kind kind, const std::string& detail) = 0;
};

/// One shard's connection to one node: connects, has the node identified and admitted before it may vote, sends the
/// commands of one loop turn together, and gives every command an answer within `node_timeout`.
///
/// A reconnect is a new connection: what was in flight is answered `broken`, and nothing built for the old run id is
/// sent again (R9).
///
/// Threads: everything but status() on the thread of `io`. Lifetime: by shared_ptr; close() before the io_context ends.
/// Limits: `node_queue_max` commands without an answer; batch_max commands in one script call.
class node_link : public std::enable_shared_from_this<node_link> {
  public:
    /// Commands that travel in one script call at most: it blocks the node for about 0.2 ms (FEASIBILITY.md 4).
    static constexpr std::size_t batch_max = 32;
    /// A node that nobody asked anything for so long is asked for a sign of life.
    static constexpr milliseconds silence_max{500};

    node_link(boost::asio::io_context& io, node_index index, const config& cfg, epoch_register& epochs,
              random_source& random, link_observer& observer);
    ~node_link();

    void open();
    void close();

    /// Queues a command for the end of this loop turn.
    ///
    /// Out: `ok` if it was queued, and its answer will come by on_reply; else the answer itself: nothing was sent.
    reply_status send(command_kind kind, std::shared_ptr<reply_target> target, fencing_token token);

    /// Looks for answers that are overdue. Called by the shard at a steady pace.
    void tick(monotonic_time now);

    bool votes() const { return supervisor_.state() == node_state::voting; }
    const std::string& run_id() const { return supervisor_.facts().run_id; }
    /// As fg:node says, whether admitted or not.
    epoch epoch_seen() const { return supervisor_.facts().admitted_epoch; }
    const std::string& name() const { return address_.name; }
    /// Threads: safe.
    node_status status() const;

  private:
    struct batch;
    using reply_handler = std::function<void(const redisReply*)>;

    void perform(node_supervisor::step step);
    void connect();
    void connect_to(const boost::asio::ip::tcp::endpoint& endpoint);
    void identify();
    void draw_epoch();
    void readmit();
    void ping();
    void drop(const std::string& why);
    void lost(const std::string& why);
    void run(const std::string& command, reply_handler on_reply);
    void flush();
    void submit(std::unique_ptr<batch> b, bool with_text);
    void answered(batch& b, const redisReply* reply);
    void publish_status(monotonic_time now);

    boost::asio::io_context& io_;
    node_index index_;
    const config& config_;
    const node_address& address_;
    epoch_register& epochs_;
    random_source& random_;
    link_observer& observer_;
    node_supervisor supervisor_;
    boost::asio::steady_timer delay_;
    boost::asio::ip::tcp::resolver resolver_;

    redisAsyncContext* context_ = nullptr;
    std::uint64_t generation_ = 0;  ///< Counts connections, so that answers of an old one are told apart.
    bool closed_ = true;
    monotonic_time handshake_deadline_ =
        monotonic_time::max();  ///< For connecting, identifying, PING; max = none under way.

    std::array<std::vector<batch_item>, command_kinds> lanes_;
    bool flush_posted_ = false;
    std::size_t unanswered_ = 0;
    std::deque<batch*> in_flight_;  ///< In order of sending, owned by hiredis' callback list.
    std::chrono::microseconds latency_{0};
    monotonic_time heard_at_{};  ///< When the node last answered anything.

    mutable std::mutex status_mutex_;
    node_status status_;
};

}  // namespace lockcore::redis
