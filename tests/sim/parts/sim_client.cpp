#include <sim/parts/sim_client.hpp>

#include <proto/validity.hpp>

#include <algorithm>

namespace sim {

using outcome = call_answer::outcome;

const std::array<sim_client::op, op_count> sim_client::ops = {{
    {"work", &sim_client::work},
    {"renew", &sim_client::renew},
    {"inspect", &sim_client::inspect},
    {"release", &sim_client::release},
    {"hand over", &sim_client::hand_over},
    {"wait past lease", &sim_client::wait_past_lease},
    {"abandon lease", &sim_client::abandon_lease},
    {"acquire again", &sim_client::acquire_again},
}};

sim_client::sim_client(context& ctx, checkers& check, gateway_interface& gateways, shop& stock_shop,
                       std::uint32_t index, drifting_clock clock)
    : ctx_(ctx), check_(check), gateways_(gateways), shop_(stock_shop), index_(index), clock_(clock) {}

void sim_client::start() {
    if (ctx_.rng.chance(ctx_.config.owner_per_thousand)) holder_.owner = static_cast<std::uint16_t>(index_ + 1);
    sleep(state::idle, ctx_.rng.draw_around(ctx_.config.think_time));
}

void sim_client::require_grant(std::uint32_t resource) {
    must_be_granted_ = true;
    required_resource_ = resource;
    sleep(state::idle, milliseconds{2} + ctx_.rng.draw_around(milliseconds{5}));
}

// --- the loop

void sim_client::sleep(state next, microseconds span) {
    state_ = next;
    ++generation_;
    ctx_.events.schedule_in(
        span, {.kind = event_kind::client_timer, .actor = static_cast<std::uint8_t>(index_), .a = generation_});
}

microseconds sim_client::pause() {
    if (ctx_.config.freeze_per_thousand > 0 && !stopping_ && ctx_.rng.chance(ctx_.config.freeze_per_thousand))
        return ctx_.rng.draw_around(ctx_.config.freeze_time);
    return ctx_.rng.draw_around(ctx_.config.think_time);
}

void sim_client::on_timer(std::uint32_t generation) {
    if (generation != generation_) return;
    switch (state_) {
        case state::idle:
            if (stopping_) {
                state_ = state::finished;
            } else if (must_be_granted_) {
                acquire(static_cast<resource_set>(1U << required_resource_), ctx_.config.max_ttl, 0);
            } else if (past_.nonce != 0 && ctx_.rng.chance(ctx_.config.past_lease_per_thousand)) {
                use_past_lease();
            } else {
                acquire(draw_resources(), ctx_.rng.between(ctx_.config.ttl_low, ctx_.config.max_ttl), 0);
            }
            return;
        case state::calling:  // no answer in time
            gateways_.cancel_call(index_);
            if (must_be_granted_ && last_.wait > milliseconds{0}) check_.waiter_not_answered(index_);
            if (last_.kind == call_kind::acquire && !last_.reentry) {
                if (last_.key.key_hash != 0 && ctx_.rng.chance(800)) unanswered_ = last_;
                return forget_lease();
            }
            if (last_.kind == call_kind::release && lease_.release_requested) return forget_lease();
            return sleep(state::holding, pause());
        case state::holding:
            return choose_op();
        case state::shopping: {  // the pause between read and write is over
            writing_ = true;
            shop_.ask({index_, generation_, shop_resource_, lease_.token, true, units_seen_ - 1, false});
            if (ctx_.rng.chance(50)) {
                ctx_.hit(probe::write_outcome_unknown);
                lease_.write_under_way = true;
                unknown_outcome_token_ = lease_.token;
                release();
            }
            return;
        }
        case state::finished:
            return;
    }
}

void sim_client::choose_op() {
    if (stopping_ || must_be_granted_ || ops_left_ == 0) return lease_.release_requested ? forget_lease() : release();
    --ops_left_;
    if (ctx_.now() > lease_.until) {
        ctx_.hit(probe::lease_expired_unnoticed);
        if (ctx_.rng.chance(300)) return forget_lease();
    }
    // It may inspect a lease that it released, but not use it.
    if (lease_.release_requested) return ctx_.rng.chance(700) ? inspect() : forget_lease();
    std::uint32_t total_weight = 0;
    for (const std::uint32_t weight : ctx_.config.op_weight)
        total_weight += weight;
    std::uint32_t drawn = ctx_.rng.below(total_weight);
    for (std::size_t i = 0; i < op_count; ++i) {
        const std::uint32_t weight = ctx_.config.op_weight[i];
        if (drawn < weight) return (this->*ops[i].run)();
        drawn -= weight;
    }
}

/// Forgets the lease. Its remaining validity still counts in C4, because the holder may still be using it.
void sim_client::forget_lease() {
    if (lease_.nonce != 0) past_ = lease_;
    lease_ = {};
    if (must_be_granted_) return sleep(state::idle, ctx_.rng.draw_around(microseconds{30'000}));
    // Each refusal in succession doubles the pause.
    refusals_ = std::min(refusals_ + 1, 5U);
    sleep(state::idle, ctx_.rng.draw_around(ctx_.config.think_time * (std::int64_t{1} << refusals_)));
}

/// Inspects or renews an earlier lease, whose resources another client may hold by now.
void sim_client::use_past_lease() {
    lease_ = past_;
    past_ = {};
    ops_left_ = 1 + ctx_.rng.below(4);
    if (!lease_.release_requested && ctx_.rng.chance(300)) return renew();
    inspect();
}

resource_set sim_client::draw_resources() {
    resource_set set = static_cast<resource_set>(1U << ctx_.rng.below(ctx_.config.resources));
    while (ctx_.config.several_per_thousand > 0 && ctx_.rng.chance(ctx_.config.several_per_thousand))
        set |= static_cast<resource_set>(1U << ctx_.rng.below(ctx_.config.resources));
    return set;
}

// --- calls to a gateway

void sim_client::ask(call c) {
    state_ = state::calling;
    ++generation_;
    c.client = index_;
    c.generation = generation_;
    c.holder = holder_;
    last_ = c;
    asked_at_ = ctx_.now();
    gateways_.ask(ctx_.rng.below(ctx_.config.gateways), c);
    microseconds call_timeout =
        ctx_.rng.between(microseconds(ctx_.config.node_timeout), microseconds(ctx_.config.node_timeout) * 8);
    if (c.wait > milliseconds{0}) {
        // Some clients cancel before the wait is over.
        const bool leaves_early = !must_be_granted_ && ctx_.rng.chance(300);
        call_timeout += leaves_early ? ctx_.rng.between(microseconds{0}, microseconds(c.wait)) : microseconds(c.wait);
        if (must_be_granted_) call_timeout += 24 * microseconds(ctx_.config.node_timeout) + ctx_.config.slow * 8;
    }
    ctx_.events.schedule_in(
        call_timeout, {.kind = event_kind::client_timer, .actor = static_cast<std::uint8_t>(index_), .a = generation_});
}

void sim_client::acquire(resource_set set, milliseconds ttl, sim_nonce previous, hold_number previous_hold) {
    call c{
        .kind = call_kind::acquire, .resources = set, .ttl = ttl, .previous = previous, .previous_hold = previous_hold};
    if (previous == 0) {
        if (ctx_.rng.chance(ctx_.config.waits_per_thousand))
            c.wait = std::chrono::ceil<milliseconds>(ctx_.rng.draw_around(ctx_.config.max_ttl)) + milliseconds{1};
        if (ctx_.rng.chance(ctx_.config.keys_per_thousand)) c.key = {std::uint64_t{index_ + 1} << 32 | ++keys_, 0};
        // A call that was not answered is repeated.
        if (unanswered_) c = *unanswered_;
        unanswered_.reset();
    }
    if (must_be_granted_ && ctx_.rng.chance(300))
        c.wait = ctx_.rng.between(milliseconds{1}, milliseconds{ctx_.rng.chance(500) ? 60'000 : 500});
    ask(c);
}

void sim_client::renew() {
    // The new ttl may be longer or shorter.
    const bool another_ttl = ctx_.rng.chance(ctx_.config.other_ttl_per_thousand);
    const milliseconds ttl = another_ttl ? ctx_.rng.between(ctx_.config.ttl_low, ctx_.config.max_ttl) : lease_.ttl;
    if (ttl < lease_.ttl) ctx_.hit(probe::renewed_for_less);
    ask({.kind = call_kind::renew,
         .resources = lease_.resources,
         .ttl = ttl,
         .nonce = lease_.nonce,
         .hold = pick_hold(),
         .token = lease_.token});
}

void sim_client::inspect() {
    ask({.kind = call_kind::inspect,
         .resources = lease_.resources,
         .nonce = lease_.nonce,
         .hold = pick_hold(),
         .token = lease_.token});
}

/// Returns a hold that the client has; if none is left, the one that it released last.
hold_number sim_client::pick_hold() {
    if (lease_.holds.empty()) return lease_.last_released;
    return lease_.holds[ctx_.rng.below(static_cast<std::uint32_t>(lease_.holds.size()))].number;
}

sim_time sim_client::valid_until(hold_number number) const {
    for (const held::hold& h : lease_.holds) {
        if (h.number == number) return h.until;
    }
    return sim_time{0};
}

void sim_client::extend_validity(hold_number number, sim_time until) {
    for (held::hold& h : lease_.holds) {
        if (h.number == number) h.until = std::max(h.until, until);
        lease_.until = std::max(lease_.until, h.until);
    }
}

/// Releases a hold; with the last one the client stops using the lease. Sometimes it releases a hold a second time.
void sim_client::release() {
    call c{.kind = call_kind::release, .resources = lease_.resources, .nonce = lease_.nonce, .token = lease_.token};
    if (lease_.last_released != 0 && !lease_.holds.empty() && ctx_.rng.chance(200)) {
        ctx_.hit(probe::released_twice);
        c.hold = lease_.last_released;
        return ask(c);
    }
    if (!lease_.holds.empty()) {
        lease_.last_released = lease_.holds.back().number;
        lease_.holds.pop_back();
    }
    c.hold = lease_.last_released;
    lease_.until = lease_.holds.empty() ? ctx_.now() : sim_time{0};
    for (const held::hold& h : lease_.holds)
        lease_.until = std::max(lease_.until, h.until);
    lease_.release_requested = lease_.holds.empty();
    check_.lease_valid_only(lease_.nonce, lease_.until);
    ask(c);
}

/// Acquires the same resources by a hand-over that ends the current lease.
void sim_client::hand_over() {
    if (holder_.owner != 0) return work();  // the nodes may have a hold that the client does not know
    lease_.release_requested = true;        // its nonce is not renewed after this
    if (!ctx_.is_active(mutation::hand_over_keeps_holder)) check_.lease_valid_only(lease_.nonce, ctx_.now());
    acquire(lease_.resources, ctx_.rng.between(ctx_.config.ttl_low, ctx_.config.max_ttl), lease_.nonce,
            lease_.holds.empty() ? lease_.last_released : lease_.holds.front().number);
}

void sim_client::wait_past_lease() {
    sleep(state::holding, ctx_.rng.draw_around(microseconds(lease_.ttl)));
}

void sim_client::abandon_lease() {
    forget_lease();
}

/// Acquires the resources that it holds already, as a re-entrant owner does.
void sim_client::acquire_again() {
    if (holder_.owner == 0) return renew();
    call c{.kind = call_kind::acquire, .resources = lease_.resources, .reentry = true};
    c.ttl = ctx_.rng.between(ctx_.config.ttl_low, ctx_.config.max_ttl);
    if (ctx_.rng.chance(ctx_.config.waits_per_thousand)) c.wait = milliseconds{1 + ctx_.rng.below(50)};
    if (ctx_.rng.chance(ctx_.config.keys_per_thousand)) c.key = {std::uint64_t{index_ + 1} << 32 | ++keys_, 0};
    ask(c);
}

void sim_client::on_acquired_again(const call& c, const call_answer& a) {
    if (a.result == outcome::done && a.nonce != lease_.nonce) return on_acquired(c, a);  // the previous lease had ended
    if (a.result == outcome::done) {
        const auto same = [&](const held::hold& h) { return h.number == a.hold; };
        if (std::none_of(lease_.holds.begin(), lease_.holds.end(), same)) lease_.holds.push_back({a.hold, {}});
        lease_.ttl = c.ttl;
        extend_validity(a.hold, ctx_.now() + clock_.real(a.left));
        lease_.confirmed_since = asked_at_;
        check_.lease_valid(c.resources, a.nonce, lease_.until);
    }
    sleep(state::holding, pause());
}

void sim_client::on_acquired(const call& c, const call_answer& a) {
    const sim_time until = ctx_.now() + clock_.real(a.left);
    lease_ = {};
    lease_.nonce = a.nonce;
    lease_.token = a.token;
    lease_.resources = c.resources;
    lease_.ttl = c.ttl;
    lease_.write_under_way = a.token == unknown_outcome_token_;  // another hold: the same token
    lease_.until = until;
    lease_.holds = {{a.hold, until}};
    lease_.confirmed_since = asked_at_;
    check_.lease_valid(c.resources, a.nonce, until);
    refusals_ = 0;
    ops_left_ = 1 + ctx_.rng.below(7);
    was_granted_ = was_granted_ || must_be_granted_;
    sleep(state::holding, must_be_granted_ ? microseconds{0} : pause());
}

void sim_client::answer(const call& c, const call_answer& a) {
    const bool good = a.result == outcome::done;
    const sim_time until = ctx_.now() + clock_.real(a.left);
    switch (c.kind) {
        case call_kind::acquire:
            if (c.reentry) return on_acquired_again(c, a);
            if (c.previous != 0) ctx_.hit(good ? probe::hand_over_ok : probe::hand_over_failed);
            if (c.previous != 0) lease_.nonce = good ? 0 : c.previous;
            if (good) return on_acquired(c, a);
            if (c.previous != 0) return release();  // the hand-over failed, so the lease is released
            // Tries again just when the holder's lease expires.
            if (a.result == outcome::locked && a.left > milliseconds{0} && ctx_.rng.chance(500)) {
                lease_ = {};
                return sleep(state::idle, a.left + ctx_.rng.draw_around(milliseconds{1}));
            }
            return forget_lease();
        case call_kind::renew:
        case call_kind::inspect:
            if (good) {
                if (c.kind == call_kind::renew) lease_.ttl = c.ttl;
                extend_validity(c.hold, until);
                lease_.confirmed_since = asked_at_;
                if (!lease_.release_requested) check_.lease_valid(c.resources, c.nonce, lease_.until);
            } else if (a.result == outcome::lost && !lease_.release_requested && ctx_.now() < valid_until(c.hold)) {
                check_.lease_reported_lost(index_, lease_.nonce, lease_.token, lease_.confirmed_since);
                return forget_lease();
            } else if ((a.result == outcome::lost || a.result == outcome::too_late) && ctx_.rng.chance(800)) {
                return forget_lease();
            }
            return sleep(state::holding, pause());
        case call_kind::release:
            if (!lease_.release_requested)
                return a.result == outcome::lost ? forget_lease() : sleep(state::holding, pause());
            if (must_be_granted_) {
                state_ = state::finished;
                return;
            }
            return forget_lease();
    }
}

// --- selling

void sim_client::work() {
    if (lease_.write_under_way) return inspect();
    state_ = state::shopping;
    ++generation_;
    writing_ = false;
    std::uint32_t sold_here[sim_resources_max];
    std::uint32_t count = 0;
    for_each_resource(lease_.resources, [&](std::uint32_t r) { sold_here[count++] = r; });
    shop_resource_ = sold_here[ctx_.rng.below(count)];
    shop_.ask({index_, generation_, shop_resource_, lease_.token, false, 0, false});
}

void sim_client::shop_answered(const shop::visit& v) {
    if (state_ != state::shopping || v.generation != generation_) return;
    if (!v.accepted) return forget_lease();  // another holds a higher token
    if (writing_) return sleep(state::holding, pause());
    units_seen_ = v.units;
    sleep(state::shopping, pause());
}

}  // namespace sim
