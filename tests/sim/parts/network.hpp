#pragma once

#include <sim/parts/messages.hpp>
#include <sim/parts/sim_node.hpp>
#include <sim/world/fifo.hpp>

#include <array>
#include <memory>
#include <vector>

namespace sim {

/// Simulates TCP connections between gateways and nodes: messages of one connection arrive in order and at most once,
/// those of two connections in any order. A request may still arrive long after its gateway closed the connection.
class network {
  public:
    using connection = std::uint32_t;
    static constexpr connection none = ~connection{0};
    using node_list = std::vector<std::unique_ptr<sim_node>>;

    network(context& ctx, node_list& nodes);

    connection connect(std::uint32_t gateway, std::uint32_t node);
    void send(connection c, request q);
    /// The gateway closes the connection. Requests in flight may still arrive.
    void close(connection c);
    /// What the nodes publish for this mark goes to the gateway from now on. Empty: it is not subscribed.
    void subscribe(std::uint32_t gateway, std::string mark) { marks_[gateway] = std::move(mark); }

    /// Breaks one open connection, if there is one; each side notices it after a delay.
    void cut_random_connection();
    /// Delays everything between a gateway and a node (blocks_several: or several) until then,
    /// in one direction or both.
    void block_random_path(sim_time until);
    void node_crashed(std::uint32_t node);
    void gateway_crashed(std::uint32_t gateway);
    void heal();

    // Events. The caller passes the result on to the gateway.
    void request_arrives(connection c);
    /// Returns the gateway of the connection. The caller tests whether it is paused before it takes the reply.
    std::uint32_t gateway_of(connection c) const { return connections_[c].gateway; }
    std::uint32_t node_of(connection c) const { return connections_[c].node; }
    /// Empty if the connection was closed meanwhile.
    std::optional<reply> reply_arrives(connection c);
    struct release_delivery {
        std::uint32_t node = 0;
        release_message message;
    };
    const release_delivery& release_message_arrives(std::uint32_t index) const { return release_messages_[index]; }
    enum class opening : std::uint8_t { established, refused, abandoned };
    opening opens(connection c);
    /// Out: true if the connection was open for the gateway.
    bool ends(connection c);
    bool is_open(connection c) const { return connections_[c].open; }

  private:
    struct direction {
        sim_time latest{0};  ///< No later message arrives before this time.
    };
    struct connection_state {
        std::uint32_t gateway = 0, node = 0;
        run_number run = 0;    ///< The process at the other end; 0: not connected yet.
        bool open = true;      ///< As the gateway sees it.
        bool accepts = true;   ///< Requests in flight still arrive.
        bool answers = true;   ///< Replies in flight still arrive.
        bool ending = false;   ///< The event connection_ends is scheduled.
        bool replays = false;  ///< The node crashed: a later process executes the requests in flight.
        direction up, down;
        fifo<request> requests;
        fifo<reply> replies;
    };

    bool is_replayed_later(connection c);
    microseconds delay(const connection_state& l);
    sim_time arrival(const connection_state& l, direction& way, sim_time blocked_until);
    /// Out: the number of subscribers.
    std::int64_t publish(std::uint32_t node, std::string_view channel, std::string_view text);
    void schedule_end(connection c, microseconds after);

    context& ctx_;
    node_list& nodes_;
    std::vector<connection_state> connections_;
    std::array<std::array<sim_time, sim_nodes_max>, sim_gateways_max> up_blocked_{}, down_blocked_{};
    std::array<std::string, sim_gateways_max> marks_;
    std::vector<release_delivery> release_messages_;
    bool healed_ = false;
};

}  // namespace sim
