#pragma once

#include <sim/parts/messages.hpp>
#include <sim/parts/sim_node.hpp>
#include <sim/world/fifo.hpp>

#include <array>
#include <vector>

namespace sim {

/// Connections between gateways and nodes, as TCP has them: in order within one, in any order between two, never the
/// same thing twice; what a gateway sent before it gave a connection up may still arrive long afterwards.
class network {
  public:
    using connection = std::uint32_t;
    static constexpr connection none = ~connection{0};

    network(context& ctx, std::vector<sim_node>& nodes) : ctx_(ctx), nodes_(nodes) {}

    connection connect(std::uint32_t gateway, std::uint32_t node);
    void send(connection c, const request& q);
    /// The gateway gives it up. What is under way to the node may still arrive.
    void close(connection c);

    /// Breaks one open connection, if there is any; both sides hear of it, each in its time.
    void cut_any();
    /// Nothing gets through between the two, one way or both, until then; later it does.
    void block_any(sim_time until);
    void node_crashed(std::uint32_t node);
    void gateway_crashed(std::uint32_t gateway);
    void heal();

    // Events. What is returned is to be handed to the gateway.
    void request_arrives(connection c);
    struct delivery {
        std::uint32_t gateway = 0, node = 0;
        bool arrived = false;
        sim::reply reply;
    };
    /// Whose gateway is the connection's; a paused gateway is looked for before the reply is taken.
    std::uint32_t gateway_of(connection c) const { return connections_[c].gateway; }
    std::uint32_t node_of(connection c) const { return connections_[c].node; }
    delivery reply_arrives(connection c);
    struct told_wake {
        std::uint32_t node = 0;
        wake what;
    };
    const told_wake& wake_arrives(std::uint32_t at) const { return wakes_[at]; }
    enum class opening : std::uint8_t { stands, refused, given_up };
    opening opens(connection c);
    /// True if the gateway still thought it open.
    bool ends(connection c);

  private:
    struct one_way {
        sim_time latest{0};  ///< Nothing arrives before what was sent before it.
    };
    struct line {
        std::uint32_t gateway = 0, node = 0;
        run_number run = 0;   ///< The process at the other end; 0: not yet connected.
        bool open = true;     ///< As the gateway sees it.
        bool accepts = true;  ///< Requests under way still arrive.
        bool answers = true;  ///< Replies under way still arrive.
        bool ending = false;  ///< The gateway is about to hear that it broke.
        one_way up, down;
        fifo<request> requests;
        fifo<reply> replies;
    };

    microseconds delay(const line& l);
    sim_time arrival(const line& l, one_way& way, sim_time blocked_until);
    void publish(std::uint32_t node, const wake& w);
    void end_soon(connection c, microseconds after);

    context& ctx_;
    std::vector<sim_node>& nodes_;
    std::vector<line> connections_;
    std::array<std::array<sim_time, sim_nodes_max>, sim_gateways_max> up_blocked_{}, down_blocked_{};
    std::vector<told_wake> wakes_;
    bool healed_ = false;
};

}  // namespace sim
