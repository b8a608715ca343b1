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

struct raw_node_facts;

/// What an admission needs of its shard: facts about the other nodes, and a receiver of events.
class link_observer {
  public:
    virtual ~link_observer() = default;
    /// Returns the name of another voting node with this run id; empty if there is none.
    virtual std::string find_duplicate(node_index node, const std::string& run_id) const = 0;
    /// Returns the highest epoch on any node, voting or not: the register may have been restored from an old backup.
    virtual epoch highest_epoch() const = 0;
    virtual void on_node_event(node_index node, event_kind kind, const std::string& detail) = 0;
    /// The state in admission::status() has changed.
    virtual void on_state_changed(node_index node) = 0;
};

/// Connects to one node, identifies it and admits it before it votes, and checks its settings while it votes. Performs
/// the actions of the node_supervisor.
///
/// Threads:  everything but status() on the thread of `io`.
/// Lifetime: by shared_ptr; stop() before the io_context ends.
class admission : public std::enable_shared_from_this<admission> {
  public:
    /// A voting node without an answer for so long, and without a command in flight, is sent PING.
    static constexpr milliseconds ping_after{500};
    /// The role and the settings of a voting node are checked this often, for they can change while it runs.
    static constexpr milliseconds review_interval{5'000};

    struct collaborators {
        epoch_register& epochs;
        random_source& random;
        link_observer& observer;
    };

    admission(boost::asio::io_context& io, node_index index, const config& cfg, collaborators services);
    ~admission();

    void start();
    void stop();

    /// Checks deadlines; called at regular intervals. `has_unanswered`: the node has commands in flight.
    void tick(monotonic_time now, bool has_unanswered);
    /// The node answered a command.
    void on_answer(monotonic_time now, std::chrono::microseconds latency);
    /// Closes the connection to a node that does not answer.
    void drop_connection(const std::string& reason) { connection_->drop(reason); }
    /// A script answered with an error (UNINIT or another); `error` is its text.
    void on_script_error(const std::string& error);

    bool is_voting() const { return supervisor_.state() == node_state::voting && connection_->is_open(); }
    const std::string& run_id() const { return supervisor_.facts().run_id; }
    /// Returns the epoch in fg:node, whether the node is admitted or not.
    epoch observed_epoch() const { return supervisor_.facts().admitted_epoch; }
    connection& node_connection() { return *connection_; }
    /// Threads: safe.
    node_status status() const;

  private:
    void perform(node_supervisor::step step);
    void load_missing_scripts();
    void identify();
    void process_facts(const raw_node_facts& raw);
    void write_claim(node_facts facts);
    void finish_identification(node_facts facts);
    /// Ends the identification: the node refused a command with this error, and does not vote.
    void end_refused_identification(const std::string& error);
    void start_register_query(node_supervisor::action query);
    boost::asio::awaitable<result<node_supervisor::step>> query_register(node_supervisor::action query);
    void report_quarantine(node_state old_state);
    void delete_admission();
    void readmit();
    void ping();
    /// Sends a command and calls `on_reply` with the answer, unless the connection has changed by then.
    void send_command(const std::string& command, std::function<void(const redisReply*)> on_reply);
    void publish_status(monotonic_time now);

    boost::asio::io_context& io_;
    node_index index_;
    const config& config_;
    const node_address& address_;
    collaborators services_;
    node_supervisor supervisor_;
    std::shared_ptr<connection> connection_;
    boost::asio::steady_timer delay_;
    std::uint64_t steps_ = 0;  ///< The number of the latest step; older steps are not performed any more.
    bool stopped_ = true;
    /// Of the connection attempt, the identification or the PING in progress; max: none.
    monotonic_time handshake_deadline_ = monotonic_time::max();
    monotonic_time last_answer_at_{}, reviewed_at_{};
    std::chrono::microseconds latency_{0};

    mutable std::mutex status_mutex_;
    node_status status_;
};

}  // namespace lockcore::redis
