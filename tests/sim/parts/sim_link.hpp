#pragma once

#include <proto/node_supervisor.hpp>
#include <sim/parts/epoch_register.hpp>
#include <sim/parts/network.hpp>

#include <optional>
#include <vector>

namespace sim {

class sim_gateway;

/// Simulates one gateway's connection to one node in place of lockcore/redis/node_link: it runs the actions of the
/// node_supervisor and answers every request within the node timeout.
class sim_link {
  public:
    sim_link(context& ctx, network& net, epoch_register& epochs, sim_gateway& owner, std::uint32_t gateway,
             std::uint32_t node);

    void open();
    /// Discards all state, because the gateway crashed.
    void reset();

    /// Out: `ok` if the request was sent and will be answered; otherwise the answer, and nothing was sent.
    lockcore::reply_status send(request q);

    bool votes() const { return supervisor_.state() == lockcore::node_state::voting; }
    std::uint64_t epoch_seen() const { return value_of(supervisor_.facts().admitted_epoch); }
    run_number run() const { return run_; }

    // Events.
    void opened(network::connection c, network::opening result);
    void ended(network::connection c);
    void arrived(network::connection c, const reply& r);
    void run_action(std::uint32_t serial, lockcore::node_supervisor::action next);
    void check_timers();
    void register_answered(const epoch_register::call& answer);

  private:
    struct sent {
        request asked;
        sim_time at{};
        bool overdue = false;
    };
    using step = lockcore::node_supervisor::step;

    void perform(step next);
    void connect();
    void identify();
    void ask_register(epoch_register::query_kind kind);
    void delete_admission();
    void readmit();
    void on_connection_lost(const char* reason);
    void drop_connection(const char* reason);
    void answered(const reply& r);
    void identified(const reply& r);
    void record_found(lockcore::node_record record);
    void use_epoch(std::uint64_t epoch);
    void schedule_check(sim_time when);
    lockcore::monotonic_time local_time() const;
    milliseconds quarantine_time() const;

    context& ctx_;
    network& net_;
    epoch_register& epochs_;
    sim_gateway& owner_;
    std::uint32_t gateway_, node_;

    lockcore::node_supervisor supervisor_;
    network::connection connection_ = network::none;
    bool established_ = false;
    std::uint32_t generation_ = 0;              ///< Counts connections.
    std::uint32_t serial_ = 0;                  ///< Counts scheduled actions; only the latest one runs.
    std::uint32_t scheduled_generation_ = 0;    ///< The connection for which the action was scheduled.
    run_number run_ = 0;                        ///< The run id that was read on this connection.
    node_marks identified_marks_;               ///< The marks that were read with it.
    std::optional<std::uint64_t> spare_epoch_;  ///< Only with mutation::early_draw.

    fifo<sent> in_flight_;
    std::vector<request> to_replay_;  ///< Only with mutation::replay_on_reconnect.
    sim_time handshake_until_ = sim_time::max();
    sim_time last_reply_at_{0}, reviewed_at_{0};
    sim_time next_check_at_ = sim_time::max();
};

}  // namespace sim
