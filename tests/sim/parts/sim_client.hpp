#pragma once

#include <sim/check/checkers.hpp>
#include <sim/parts/calls.hpp>
#include <sim/parts/shop.hpp>

namespace sim {

/// Sends calls to a gateway.
class gateway_interface {
  public:
    virtual ~gateway_interface() = default;
    virtual void ask(std::uint32_t gateway, const call& c) = 0;
    /// The client no longer waits for its last call.
    virtual void cancel_call(std::uint32_t client) = 0;
};

/// A client that acquires leases and sells units under them. It misbehaves on purpose: it sleeps past the end of its
/// lease, uses a lease that is over, cancels calls, and abandons leases without a release.
class sim_client {
  public:
    sim_client(context& ctx, checkers& check, gateway_interface& gateways, shop& stock_shop, std::uint32_t index,
               drifting_clock clock);

    void start();
    /// Acquires no more leases and releases the current one.
    void stop() { stopping_ = true; }
    /// Only acquires this resource once, and repeats the call until it is granted.
    void require_grant(std::uint32_t resource);
    bool was_granted() const { return was_granted_; }

    bool is_waiting_for(const call& c) const { return state_ == state::calling && c.generation == generation_; }
    void answer(const call& c, const call_answer& a);
    void on_timer(std::uint32_t generation);
    void shop_answered(const shop::visit& v);

  private:
    enum class state : std::uint8_t { idle, calling, holding, shopping, finished };
    struct held {
        sim_nonce nonce = 0;
        std::uint64_t token = 0;
        resource_set resources = 0;
        milliseconds ttl{0};
        /// The client called release, so it must not use the lease, whatever the answer.
        bool release_requested = false;
        bool write_under_way = false;  ///< Its outcome is unknown: the client writes nothing more with this token.
        struct hold {
            hold_number number = 0;
            sim_time until{0};  ///< Each hold has a validity of its own.
        };
        std::vector<hold> holds;        ///< Granted to this client and not released.
        hold_number last_released = 0;  ///< The hold that it released last.
        sim_time confirmed_since{0};    ///< When the request was made that last confirmed the lease.
        sim_time until{0};              ///< End of the validity by its own clock, in real time.
    };
    /// An operation on a lease. A new one needs a row in `ops` and a weight in `options`.
    struct op {
        const char* name;
        void (sim_client::*run)();
    };
    static const std::array<op, op_count> ops;

    void acquire(resource_set set, milliseconds ttl, sim_nonce previous, hold_number previous_hold = 0);
    void work();
    void renew();
    void inspect();
    void release();
    void hand_over();
    void wait_past_lease();
    void abandon_lease();
    void acquire_again();
    void on_acquired(const call& c, const call_answer& a);
    void on_acquired_again(const call& c, const call_answer& a);
    hold_number pick_hold();
    void extend_validity(hold_number number, sim_time until);
    sim_time valid_until(hold_number number) const;

    void ask(call c);
    void choose_op();
    void use_past_lease();
    void forget_lease();
    void sleep(state next, microseconds span);
    microseconds pause();
    resource_set draw_resources();

    context& ctx_;
    checkers& check_;
    gateway_interface& gateways_;
    shop& shop_;
    std::uint32_t index_;
    drifting_clock clock_;

    state state_ = state::idle;
    std::uint32_t generation_ = 0;  ///< Counts waits; answers to earlier calls are ignored.
    call last_;
    sim_time asked_at_{0};
    identity holder_;
    std::optional<call> unanswered_;  ///< An unanswered call with an idempotency key, to be repeated.
    std::uint32_t keys_ = 0;
    held lease_, past_;
    std::uint32_t ops_left_ = 0, refusals_ = 0;
    bool writing_ = false;
    std::uint32_t shop_resource_ = 0;
    std::uint64_t units_seen_ = 0, unknown_outcome_token_ = 0;
    bool stopping_ = false, must_be_granted_ = false, was_granted_ = false;
    std::uint32_t required_resource_ = 0;
};

}  // namespace sim
