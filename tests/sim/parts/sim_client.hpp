#pragma once

#include <sim/check/checkers.hpp>
#include <sim/parts/calls.hpp>
#include <sim/parts/shop.hpp>

namespace sim {

/// Takes calls to a gateway on their way.
class gateways {
  public:
    virtual ~gateways() = default;
    virtual void ask(std::uint32_t gateway, const call& c) = 0;
    /// The client no longer waits for what it asked for last.
    virtual void drop(std::uint32_t client) = 0;
};

/// Whoever holds leases and sells units under them. It is careless on purpose: it sleeps past its lease, goes on with
/// one it should no longer trust, gives up waiting, and walks away without releasing.
class sim_client {
  public:
    sim_client(context& ctx, checkers& check, gateways& to, shop& sells, std::uint32_t index, drifting_clock clock);

    void start();
    /// Takes no more leases, and lets go of what it has.
    void stop() { stopping_ = true; }
    /// Does nothing but take this resource once, however often it must ask.
    void insist_on(std::uint32_t resource);
    bool got_it() const { return got_it_; }

    bool waits_for(const call& c) const { return state_ == state::calling && c.generation == generation_; }
    void answer(const call& c, const call_answer& a);
    void wakes(std::uint32_t generation);
    void shop_answered(const shop::visit& v);

  private:
    enum class state : std::uint8_t { idle, calling, holding, shopping, finished };
    struct held {
        sim_nonce nonce = 0;
        std::uint64_t token = 0;
        resource_set resources = 0;
        milliseconds ttl{0};
        bool given_back = false;  ///< It asked for the release: whatever is answered later, it is not its any more.
        bool write_under_way = false;  ///< Its outcome is unknown: nothing more under this token.
        struct hold {
            hold_number number = 0;
            sim_time until{0};  ///< Each has a validity of its own.
        };
        std::vector<hold> holds;   ///< That it knows of and has not given back.
        hold_number released = 0;  ///< The one that it gave back last.
        sim_time sure_since{0};    ///< When it asked for what it was told last.
        sim_time until{0};         ///< Real time until which its own clock says that the lease is valid.
    };
    /// What a client may do with a lease. A new operation is a new row here and a new weight in options.
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
    void linger();
    void walk_away();
    void hold_again();
    void acquired(const call& c, const call_answer& a);
    void held_again(const call& c, const call_answer& a);
    hold_number some_hold();
    void prolong(hold_number which, sim_time until);
    sim_time valid_until(hold_number which) const;

    void ask(call c);
    void choose_op();
    void ask_for_the_past();
    void let_go();
    void sleep(state next, microseconds span);
    microseconds pause();
    resource_set some_resources();

    context& ctx_;
    checkers& check_;
    gateways& gateways_;
    shop& shop_;
    std::uint32_t index_;
    drifting_clock clock_;

    state state_ = state::idle;
    std::uint32_t generation_ = 0;  ///< Counts what it waits for; answers to anything older are not heard.
    call last_;
    sim_time asked_at_{0};
    identity me_;
    std::optional<call> repeats_;  ///< With its idempotency key: a request that was not answered.
    std::uint32_t keys_ = 0;
    held lease_, past_;
    std::uint32_t ops_left_ = 0, refused_ = 0;
    bool writing_ = false;
    std::uint32_t shop_resource_ = 0;
    std::uint64_t units_seen_ = 0, unsure_under_ = 0;
    bool stopping_ = false, insists_ = false, got_it_ = false;
    std::uint32_t insisted_ = 0;
};

}  // namespace sim
