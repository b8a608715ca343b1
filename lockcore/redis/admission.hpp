#pragma once

#include <lockcore/config.hpp>
#include <lockcore/events.hpp>
#include <lockcore/node_status.hpp>
#include <lockcore/ports.hpp>
#include <proto/node_supervisor.hpp>
#include <redis/connection.hpp>

#include <boost/asio/steady_timer.hpp>

#include <memory>
#include <mutex>
#include <string>

namespace lockcore::redis {

struct node_look;

/// What a node's connection needs to know of its neighbours.
class link_observer {
  public:
    virtual ~link_observer() = default;
    /// The name of another node with this run id; empty if there is none.
    virtual std::string same_server(node_index asking, const std::string& run_id) const = 0;
    /// The highest epoch seen on any node, whether it votes or not: the register may have been restored from an old
    /// backup.
    virtual epoch highest_epoch() const = 0;
    virtual void node_changed(node_index node, event_kind kind, const std::string& detail) = 0;
    /// The node's state at this link is another: status() says which.
    virtual void state_changed(node_index node) = 0;
};

/// Has one node connected, identified and admitted before it may vote, and looked at again while it does: performs what
/// the node_supervisor asks for.
///
/// Threads: everything but status() on the thread of `io`. Lifetime: by shared_ptr; stop() before the io_context ends.
class admission : public std::enable_shared_from_this<admission> {
  public:
    /// A node that nobody asked anything for so long is asked for a sign of life.
    static constexpr milliseconds silence_max{500};
    /// A voting node's role and settings are looked at again this often: they can be changed while it runs.
    static constexpr milliseconds review_every{5'000};

    struct collaborators {
        epoch_register& epochs;
        random_source& random;
        link_observer& observer;
    };

    admission(boost::asio::io_context& io, node_index index, const config& cfg, collaborators with);
    ~admission();

    void start();
    void stop();

    /// Called at a steady pace. `owes`: the node has commands to answer.
    void tick(monotonic_time now, bool owes);
    /// The node answered something.
    void heard(monotonic_time now, std::chrono::microseconds latency);
    /// It does not answer: the connection is given up.
    void give_up(const std::string& why) { connection_->drop(why); }
    /// A script answered UNINIT, or another error: `why` is its text.
    void refused(const std::string& why);

    bool votes() const { return supervisor_.state() == node_state::voting && connection_->is_open(); }
    const std::string& run_id() const { return supervisor_.facts().run_id; }
    /// As fg:node says, whether admitted or not.
    epoch epoch_seen() const { return supervisor_.facts().admitted_epoch; }
    connection& link() { return *connection_; }
    /// Threads: safe.
    node_status status() const;

  private:
    void perform(node_supervisor::step step);
    void load_missing_scripts();
    void identify();
    void looked(const node_look& found);
    void claim(node_facts facts);
    void identified(node_facts facts);
    void use_register(node_supervisor::action what);
    boost::asio::awaitable<result<node_supervisor::step>> call_register(node_supervisor::action what);
    void report_quarantine(node_state before);
    void forget();
    void readmit();
    void ping();
    /// Calls `then` with the answer, unless it belongs to a connection that is over.
    void ask(const std::string& command, std::function<void(const redisReply*)> then);
    void publish_status(monotonic_time now);

    boost::asio::io_context& io_;
    node_index index_;
    const config& config_;
    const node_address& address_;
    collaborators with_;
    node_supervisor supervisor_;
    std::shared_ptr<connection> connection_;
    boost::asio::steady_timer delay_;
    std::uint64_t steps_ = 0;  ///< Only the latest step is performed.
    bool stopped_ = true;
    /// For connecting, identifying, PING; max = none under way.
    monotonic_time handshake_deadline_ = monotonic_time::max();
    monotonic_time heard_at_{}, reviewed_at_{};
    std::chrono::microseconds latency_{0};

    mutable std::mutex status_mutex_;
    node_status status_;
};

}  // namespace lockcore::redis
