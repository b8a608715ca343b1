#pragma once

#include <proto/core.hpp>
#include <sim/parts/calls.hpp>
#include <sim/parts/epoch_register.hpp>
#include <sim/parts/network.hpp>
#include <sim/parts/sim_storage_watch.hpp>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace sim {

/// Drives one core of the product, as lockcore/runtime does in a gateway: passes in calls,
/// answers and time, and performs the actions. It may crash at any time, which ends the core,
/// and restart with a new one.
class sim_gateway {
  public:
    sim_gateway(context& ctx, network& net, database& db, epoch_register& epochs, gateway_sessions& sessions,
                checkers& check, client_interface& clients, std::uint32_t index, drifting_clock clock);
    sim_gateway(const sim_gateway&) = delete;

    void start();
    void crash();
    void pause_until(sim_time until);
    void resume() { paused_until_ = sim_time{0}; }

    bool runs() const { return core_ != nullptr; }
    sim_time paused_until() const { return paused_until_; }
    std::uint32_t index() const { return index_; }
    std::uint32_t incarnation() const { return incarnation_; }
    /// Empty where PostgreSQL is never replaced, and while the gateway does not run.
    sim_storage_watch* storage() { return storage_.get(); }

    // Events.
    void on_call(const call& c);
    /// The client cancelled the call.
    void on_client_gone(const call& c);
    void on_release_message(std::uint32_t node, const release_message& m);
    void on_opened(network::connection c, network::opening result);
    void on_ended(network::connection c);
    void on_reply(network::connection c, const reply& r);
    void on_register_answer(const epoch_register::call& answer);
    void on_tick(std::uint32_t incarnation);
    void on_timer(std::uint32_t incarnation, std::uint32_t serial);
    void on_flush(std::uint32_t incarnation);
    void on_storage_asked(std::uint32_t incarnation, std::uint32_t serial);
    void on_storage_answered(std::uint32_t incarnation, std::uint32_t serial);

  private:
    struct sent_batch {
        lockcore::request_number number{};
        lockcore::command_kind kind{};
        std::vector<sim_nonce> attempts;  ///< Of ACQUIRE and CONFIRM, by command.
    };
    struct link {
        network::connection connection = network::none;
        lockcore::connection_number number{};
        fifo<std::variant<sent_batch, lockcore::node_request::any>> asked;  ///< In the order of sending.
        sim_time changed_at{0};  ///< When the state of the node changed, or its connection.
    };
    struct pending_call {
        call asked;
        checkers::token_floors before{};
    };
    /// An attempt that must be undone if it is not granted (C6).
    struct watched_attempt {
        sim_time begun_at{}, until{};
        bool granted = false;
        std::array<bool, sim_nodes_max> acquired{}, undone{};
    };
    struct random_bits final : lockcore::random_source {
        explicit random_bits(random& r) : rng(r) {}
        std::uint64_t next() override { return rng.next(); }
        random& rng;
    };
    /// Not a MAC: it only depends on the message.
    struct checksum final : lockcore::authenticator {
        std::array<std::byte, size> sign(std::string_view message) const override;
    };

    microseconds local_time() const { return clock_.of(ctx_.now()) + std::chrono::hours{1}; }
    void step(lockcore::core_input what);
    void watch_storage();
    void schedule(event_kind kind, microseconds local_delay, std::uint32_t serial = 0);

    void perform(const lockcore::action::open_connection& a);
    void perform(const lockcore::action::close_connection& a);
    void perform(const lockcore::action::send_batch& a);
    void perform(const lockcore::action::ask_node& a);
    void perform(lockcore::action::ask_register& a);
    void perform(lockcore::action::answer& a);
    void perform(const lockcore::action::record&) {}
    void perform(const lockcore::action::node_changed& a);

    void observe_batch(const lockcore::action::send_batch& a, request& q, sent_batch& batch);
    void observe_replies(std::uint32_t node, const sent_batch& batch, const std::vector<lockcore::node_reply>& replies);
    void observe_answer(const pending_call& c, const lockcore::call_result& result);
    /// Reports attempts that were neither granted nor undone although their node could be reached.
    void check_attempts();

    context& ctx_;
    network& net_;
    database& db_;
    epoch_register& epochs_;
    gateway_sessions& sessions_;
    checkers& check_;
    client_interface& clients_;
    std::uint32_t index_;
    drifting_clock clock_;
    lockcore::config settings_;
    random_bits random_;
    checksum mac_;
    std::unique_ptr<lockcore::core> core_;
    std::unique_ptr<sim_storage_watch> storage_;
    std::uint32_t incarnation_ = 0;
    sim_time paused_until_{0}, resumed_at_{0};
    std::array<link, sim_nodes_max> links_;
    std::map<lockcore::call_id, pending_call> calls_;
    std::uint64_t last_call_ = 0;
    bool flush_scheduled_ = false;
    std::optional<lockcore::monotonic_time> timer_at_;
    std::uint32_t timer_serial_ = 0;
    std::map<sim_nonce, watched_attempt> watched_;
};

}  // namespace sim
