#pragma once

#include <sim/check/checkers.hpp>
#include <sim/parts/calls.hpp>
#include <sim/parts/shop.hpp>

#include <optional>
#include <set>

namespace sim {

/// Sends calls to a gateway.
class gateway_interface {
  public:
    virtual ~gateway_interface() = default;
    virtual void ask(std::uint32_t gateway, call c) = 0;
    /// The client no longer waits for its last call.
    virtual void cancel_call(std::uint32_t client) = 0;
    /// A client was answered that a request is cancelled. `everywhere`: no other gateway has got it.
    virtual void request_cancelled(const lockcore::acquire_request& request, bool everywhere) = 0;
    /// Sends a statement to the shop, over the client's own connection or (`gateway`) that of a gateway.
    virtual void visit_shop(shop::visit v) = 0;
};

/// A client that acquires leases and sells units under them. It misbehaves on purpose: it sleeps past the end of its
/// lease, uses a lease that is over, cancels calls, and abandons leases without a release.
///
/// sim_client.cpp has its loop and acquires; sim_client_ops.cpp has what it does with a lease.
class sim_client {
  public:
    sim_client(context& ctx, checkers& check, gateway_interface& gateways, std::uint32_t index, drifting_clock clock);

    void start();
    /// Acquires no more leases and releases the current one; with `reads` it goes on to acquire leases that share all
    /// their resources.
    void stop(bool reads) {
        stopping_ = !reads;
        only_reads_ = reads;
    }
    /// Only acquires this resource once, and repeats the call until it is granted; where PostgreSQL was replaced, also
    /// until the guard has let in a write.
    void require_grant(std::uint32_t resource);
    bool was_granted() const { return was_granted_; }

    void answer(const call& c, lockcore::call_result result);
    void on_timer(std::uint32_t generation);
    void shop_answered(const shop::visit& v);

  private:
    enum class state : std::uint8_t { idle, calling, holding, shopping, finished };
    enum class op_kind : std::uint8_t { acquire, reenter, renew, inspect, release, keep, close, find, revoke, cancel };
    struct hold {
        lockcore::lease_claims claims;
        sim_time until{0};  ///< Each hold has a validity of its own.
    };
    struct confirmation {
        sim_time since, until;  ///< The time of the request, and how long the lease is valid by its answer.
    };
    struct held {
        sim_nonce nonce = 0;
        std::uint64_t token = 0;
        resource_set resources = 0;
        milliseconds ttl{0};
        /// The client called release, so it must not use the lease, whatever the answer.
        bool release_requested = false;
        bool write_under_way = false;  ///< Its outcome is unknown: the client writes nothing more with this token.
        std::vector<hold> holds;       ///< Granted to this client and not released.
        lockcore::lease_claims last_released;     ///< The hold that it released last.
        std::vector<confirmation> confirmations;  ///< By time; each is valid for longer than those that follow.
        sim_time until{0};                        ///< End of the validity by its own clock, in real time.
        /// As the gateway `gateway` answered it: only that one can keep it, for it measures the validity.
        std::optional<lockcore::lease> answered;
        std::uint32_t gateway = 0;
    };
    /// An operation on a lease. A new one needs a row in `ops` and a weight in `options`.
    struct op {
        const char* name;
        void (sim_client::*run)();
    };
    static const std::array<op, op_count> ops;

    // sim_client.cpp
    void ask(op_kind kind, lockcore::core_input input, milliseconds wait = milliseconds{0},
             std::optional<std::uint32_t> gateway = {});
    void note_grant(const lockcore::lease& granted);
    void repeat_later();
    bool shares_owner() const;
    bool may_repeat_elsewhere() const;
    bool timed_out() const;
    bool repeat_elsewhere();
    void cancel_request();
    void on_request_cancelled(const lockcore::result<lockcore::release_outcome>& answer);
    void acquire(resource_set set, milliseconds ttl);
    void on_acquired(const lockcore::result<lockcore::lease>& answer);
    void take_lease(const lockcore::lease& granted);
    void choose_op();
    void use_past_lease();
    void forget_lease();
    void sleep(state next, microseconds span);
    void sleep_holding() { sleep(state::holding, pause()); }
    microseconds pause();
    milliseconds draw_ttl();
    resource_set draw_resources();
    lockcore::acquire_request make_request(resource_set set, milliseconds ttl);

    // sim_client_ops.cpp
    void work();
    void renew();
    void inspect();
    void release();
    void keep();
    void close();
    void on_late_answer(const call& c, const lockcore::call_result& answered);
    std::uint32_t other_gateway();
    void revoke_another();
    void wait_past_lease();
    void abandon_lease();
    void acquire_again();
    void on_acquired_again(const lockcore::result<lockcore::lease>& answer);
    void on_confirmed(const lockcore::result<lockcore::lease>& answer);
    void on_kept(const lockcore::result<lockcore::keep_step>& answer);
    void on_closed(const lockcore::result<lockcore::close_outcome>& answer);
    void on_found(const lockcore::result<lockcore::found_lease>& answer);
    void on_released(const lockcore::result<lockcore::release_outcome>& answer);
    const lockcore::lease_claims& pick_hold();
    void extend_validity(const lockcore::lease& confirmed);
    void end_of_lease_reported(const lockcore::hold_id& id);
    sim_time valid_until(const lockcore::hold_id& id) const;

    context& ctx_;
    checkers& check_;
    gateway_interface& gateways_;
    std::uint32_t index_;
    drifting_clock clock_;

    state state_ = state::idle;
    std::uint32_t generation_ = 0;  ///< Counts waits; answers to earlier calls are ignored.
    op_kind asked_{};
    std::uint32_t asked_gateway_ = 0;
    lockcore::acquire_request asked_lease_;
    lockcore::hold_id asked_hold_;
    sim_time asked_at_{0};
    lockcore::holder holder_;
    std::optional<lockcore::acquire_request>
        to_repeat_;                            ///< With an idempotency key: not answered, or answered with 503.
    std::uint32_t gateways_with_request_ = 0;  ///< Those that may have got asked_lease_, one bit each.
    std::uint32_t keys_ = 0;
    std::uint32_t repeats_ = 0;  ///< Of the present request, in succession.
    held lease_, past_;
    std::uint32_t ops_left_ = 0, refusals_ = 0;
    bool writing_ = false;
    shop::visit read_;  ///< The row as it was read last.
    std::set<std::uint64_t> unknown_outcome_tokens_;
    bool is_direct_ = true;  ///< It has a connection of its own to PostgreSQL.
    bool only_reads_ = false, stopping_ = false, must_be_granted_ = false, was_granted_ = false;
    std::uint32_t required_resource_ = 0;
};

}  // namespace sim
