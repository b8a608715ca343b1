#pragma once

#include <proto/core_context.hpp>
#include <proto/fast_readmission.hpp>
#include <proto/node_supervisor.hpp>

#include <algorithm>
#include <functional>
#include <string>

namespace lockcore {

/// What an admission needs to know of the other nodes.
class cluster_view {
  public:
    virtual ~cluster_view() = default;
    /// Returns the name of another voting node with this run id; empty if there is none.
    virtual std::string find_duplicate(node_index node, const std::string& run_id) const = 0;
    /// Returns the highest plausible epoch on any node, voting or not: the register may have been restored from an old
    /// backup.
    virtual epoch highest_epoch() const = 0;
    /// Returns the highest epoch that is plausible for the node, by what the others show (proto/plausible_epoch).
    virtual epoch highest_plausible_epoch(node_index node) const = 0;
    /// Returns the other voting nodes; empty if there are fewer than n − q + 1: of so many, every majority that
    /// includes this node includes one of them. After failed tries it returns only so many, another choice each time,
    /// because one of the nodes may be impossible to read.
    virtual std::vector<fast_readmission::source> find_sources(node_index node, std::size_t failed_tries) const = 0;
};

/// The connection of an admission's node.
class node_transport {
  public:
    virtual ~node_transport() = default;
    virtual bool is_open() const = 0;
    virtual void open() = 0;
    /// Closes the connection to a node that does not answer as it should. The node is then disconnected.
    virtual void drop(const std::string& reason) = 0;
    /// `then`: is called with the answer, unless the connection is lost before.
    virtual void ask(node_request::any request, std::function<void(node_response::any)> then) = 0;
};

/// Identifies one node and admits it before it votes, and checks its settings while it votes. Performs the actions of
/// the node_supervisor.
///
/// Threads: not safe.
class admission {
  public:
    /// A voting node without an answer for so long, and without a command in flight, is sent PING.
    static constexpr milliseconds ping_after{500};
    /// The role and the settings of a voting node are checked this often, for they can change while it runs.
    static constexpr milliseconds review_interval{5'000};

    /// `leads`: of the cores of all threads, this one reports quarantines and copies leases.
    admission(core_context& ctx, node_index index, node_transport& transport, const cluster_view& others, bool leads);

    void start();
    void stop();

    void connected() { perform(supervisor_.connected()); }
    /// `refused`: the node refused the credentials, or the password can't be read.
    void disconnected(const std::string& reason, bool refused);
    /// Checks deadlines; called at regular intervals. `has_unanswered`: the node has commands in flight.
    void tick(bool has_unanswered);
    /// The node answered a command.
    void on_answer(std::chrono::microseconds latency);
    /// A script answered with an error (UNINIT or another); `error` is its text.
    void on_script_error(const std::string& error);

    bool is_voting() const { return supervisor_.state() == node_state::voting && transport_.is_open(); }
    /// Returns whether the node is connected, and a server that can be a node.
    bool is_identified() const {
        return transport_.is_open() && !run_id().empty() && supervisor_.state() != node_state::misconfigured;
    }
    const std::string& run_id() const { return supervisor_.facts().run_id; }
    /// Returns the highest epoch that the node may claim.
    epoch highest_plausible_epoch() const { return others_.highest_plausible_epoch(index_); }
    /// Returns the epoch of the base in fg:node, whether the node is admitted or not; 0 if it is implausible.
    epoch base_epoch() const { return if_plausible(supervisor_.facts().admitted_epoch); }
    /// Returns the highest epoch in fg:node, of the base and of an announced floor, without one that is implausible.
    epoch observed_epoch() const { return std::max(base_epoch(), if_plausible(floor_epoch())); }
    /// Returns the highest epoch in fg:node, plausible or not.
    epoch claimed_epoch() const { return supervisor_.facts().claimed_epoch(); }
    epoch floor_epoch() const { return supervisor_.facts().floor_epoch; }
    void floor_seen(epoch floor) { supervisor_.floor_seen(floor); }
    const std::string& name() const { return address().name; }
    node_status status() const;

  private:
    epoch if_plausible(epoch claimed) const { return claimed <= highest_plausible_epoch() ? claimed : epoch{}; }
    const node_address& address() const { return ctx_.settings.nodes[value_of(index_)]; }
    void perform(node_supervisor::step step);
    void act(node_supervisor::action next);
    void identify();
    void process_facts(node_response::identified found);
    void write_claim(node_facts facts);
    void finish_identification(node_facts facts);
    void query_register(node_supervisor::action query);
    void report(event_kind kind, const std::string& detail);
    void report_quarantine(node_state old_state);
    void copy_leases();
    void delete_admission();
    void readmit();
    void ping();
    /// From now on the node must answer within node_dead_after.
    void await_answer();
    /// Asks the node, which must answer in time.
    template <class Response>
    void ask(node_request::any request, std::function<void(Response)> then);

    core_context& ctx_;
    node_index index_;
    node_transport& transport_;
    const cluster_view& others_;
    bool leads_;
    node_supervisor supervisor_;
    std::shared_ptr<fast_readmission> copying_;  ///< Null: none is in progress.
    std::size_t failed_copies_ = 0;              ///< In a row, on this connection.
    std::string own_mark_;                       ///< The latest mark that it set; empty: none.
    std::uint64_t steps_ = 0;  ///< The number of the latest step; older steps are not performed any more.
    bool stopped_ = true;
    node_state reported_state_ = node_state::unreachable;
    /// For the connection attempt, the identification or the PING in progress; 0: there is none.
    std::uint64_t ticks_left_ = 0;
    monotonic_time last_answer_at_{}, reviewed_at_{};
    std::chrono::microseconds latency_{0};
};

}  // namespace lockcore
