#pragma once

#include <proto/node_supervisor.hpp>
#include <sim/parts/epoch_register.hpp>
#include <sim/parts/network.hpp>

#include <optional>
#include <vector>

namespace sim {

class sim_gateway;

/// One gateway's connection to one node, standing in for lockcore/redis/node_link: performs what the node_supervisor
/// asks for, and gives every request an answer within the node's time.
class sim_link {
  public:
    sim_link(context& ctx, network& net, epoch_register& epochs, sim_gateway& owner, std::uint32_t gateway,
             std::uint32_t node);

    void open();
    /// The gateway is gone, and with it whoever waited for answers.
    void forget();

    /// `ok`: its answer will come; else the answer itself, and nothing was sent.
    lockcore::reply_status send(request q);

    bool votes() const { return supervisor_.state() == lockcore::node_state::voting; }
    std::uint64_t epoch_seen() const { return value_of(supervisor_.facts().admitted_epoch); }
    run_number run() const { return run_; }

    // Events.
    void opened(network::connection c, network::opening how);
    void ended(network::connection c);
    void arrived(network::connection c, const reply& r);
    void acts(std::uint32_t serial, lockcore::node_supervisor::action what);
    void looks();
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
    void ask_register(epoch_register::question what);
    void forget_admission();
    void readmit();
    void lose(const char* why);
    void drop(const char* why);
    void answered(const reply& r);
    void identified(const reply& r);
    void record_found(lockcore::node_record record);
    void use_epoch(std::uint64_t epoch);
    void look_at(sim_time when);
    lockcore::monotonic_time local_time() const;
    milliseconds sits_out() const;

    context& ctx_;
    network& net_;
    epoch_register& epochs_;
    sim_gateway& owner_;
    std::uint32_t gateway_, node_;

    lockcore::node_supervisor supervisor_;
    network::connection connection_ = network::none;
    bool stands_ = false;
    std::uint32_t generation_ = 0;              ///< Counts connections.
    std::uint32_t serial_ = 0;                  ///< Counts what is to be done: only the latest is.
    std::uint32_t planned_in_ = 0;              ///< The generation in which it was planned.
    run_number run_ = 0;                        ///< That was read on the connection.
    node_marks looked_at_;                      ///< With it.
    std::optional<std::uint64_t> spare_epoch_;  ///< Only with mutation::early_draw.

    fifo<sent> in_flight_;
    std::vector<request> to_replay_;  ///< Only with mutation::replay_on_reconnect.
    sim_time handshake_until_ = sim_time::max();
    sim_time heard_at_{0}, reviewed_at_{0};
    sim_time looks_at_ = sim_time::max();
};

}  // namespace sim
