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
    {"linger", &sim_client::linger},
    {"walk away", &sim_client::walk_away},
    {"hold again", &sim_client::hold_again},
}};

sim_client::sim_client(context& ctx, checkers& check, gateways& to, shop& sells, std::uint32_t index,
                       drifting_clock clock)
    : ctx_(ctx), check_(check), gateways_(to), shop_(sells), index_(index), clock_(clock) {}

void sim_client::start() {
    if (ctx_.chance.chance(ctx_.set.named_per_thousand)) me_.owner = static_cast<std::uint16_t>(index_ + 1);
    sleep(state::idle, ctx_.chance.about(ctx_.set.think));
}

void sim_client::insist_on(std::uint32_t resource) {
    insists_ = true;
    insisted_ = resource;
    sleep(state::idle, milliseconds{2} + ctx_.chance.about(milliseconds{5}));
}

// --- the loop

void sim_client::sleep(state next, microseconds span) {
    state_ = next;
    ++generation_;
    ctx_.events.in(span,
                   {.kind = event_kind::client_wakes, .who = static_cast<std::uint8_t>(index_), .a = generation_});
}

microseconds sim_client::pause() {
    if (ctx_.set.freeze_per_thousand > 0 && !stopping_ && ctx_.chance.chance(ctx_.set.freeze_per_thousand))
        return ctx_.chance.about(ctx_.set.freeze);
    return ctx_.chance.about(ctx_.set.think);
}

void sim_client::wakes(std::uint32_t generation) {
    if (generation != generation_) return;
    switch (state_) {
        case state::idle:
            if (stopping_) {
                state_ = state::finished;
            } else if (insists_) {
                acquire(static_cast<resource_set>(1U << insisted_), ctx_.set.max_ttl, 0);
            } else if (past_.nonce != 0 && ctx_.chance.chance(ctx_.set.ghosts_per_thousand)) {
                ask_for_the_past();
            } else {
                acquire(some_resources(), ctx_.chance.between(ctx_.set.ttl_low, ctx_.set.max_ttl), 0);
            }
            return;
        case state::calling:  // nobody answers: it gives up
            gateways_.drop(index_);
            if (insists_ && last_.wait > milliseconds{0}) check_.waiter_forgotten(index_);
            if (last_.kind == call_kind::acquire && !last_.again) {
                if (last_.key.who != 0 && ctx_.chance.chance(800)) repeats_ = last_;
                return let_go();
            }
            if (last_.kind == call_kind::release && lease_.given_back) return let_go();
            return sleep(state::holding, pause());
        case state::holding:
            return choose_op();
        case state::shopping: {  // it has read and thought; now it writes
            writing_ = true;
            shop_.ask({index_, generation_, shop_resource_, lease_.token, true, units_seen_ - 1, false});
            if (ctx_.chance.chance(50)) {
                ctx_.hit(probe::write_outcome_unknown);
                lease_.write_under_way = true;
                unsure_under_ = lease_.token;
                release();
            }
            return;
        }
        case state::finished:
            return;
    }
}

void sim_client::choose_op() {
    if (stopping_ || insists_ || ops_left_ == 0) return lease_.given_back ? let_go() : release();
    --ops_left_;
    if (ctx_.now() > lease_.until) {
        ctx_.hit(probe::lease_ran_out_unnoticed);
        if (ctx_.chance.chance(300)) return let_go();
    }
    // It may look at what it gave back, but not use it.
    if (lease_.given_back) return ctx_.chance.chance(700) ? inspect() : let_go();
    std::uint32_t all = 0;
    for (const std::uint32_t weight : ctx_.set.op_weight)
        all += weight;
    std::uint32_t drawn = ctx_.chance.below(all);
    for (std::size_t i = 0; i < op_count; ++i) {
        const std::uint32_t weight = ctx_.set.op_weight[i];
        if (drawn < weight) return (this->*ops[i].run)();
        drawn -= weight;
    }
}

/// The lease is forgotten. Whatever validity it has left still counts: the holder may be in the middle of something.
void sim_client::let_go() {
    if (lease_.nonce != 0) past_ = lease_;
    lease_ = {};
    if (insists_) return sleep(state::idle, ctx_.chance.about(microseconds{30'000}));
    // Who is refused again and again asks more and more rarely.
    refused_ = std::min(refused_ + 1, 5U);
    sleep(state::idle, ctx_.chance.about(ctx_.set.think * (std::int64_t{1} << refused_)));
}

/// It looks, or tries to go on, where it has no business any more: somebody else may hold it by now.
void sim_client::ask_for_the_past() {
    lease_ = past_;
    past_ = {};
    ops_left_ = 1 + ctx_.chance.below(4);
    if (!lease_.given_back && ctx_.chance.chance(300)) return renew();
    inspect();
}

resource_set sim_client::some_resources() {
    resource_set set = static_cast<resource_set>(1U << ctx_.chance.below(ctx_.set.resources));
    while (ctx_.set.several_per_thousand > 0 && ctx_.chance.chance(ctx_.set.several_per_thousand))
        set |= static_cast<resource_set>(1U << ctx_.chance.below(ctx_.set.resources));
    return set;
}

// --- calls to a gateway

void sim_client::ask(call c) {
    state_ = state::calling;
    ++generation_;
    c.client = index_;
    c.generation = generation_;
    c.by = me_;
    last_ = c;
    asked_at_ = ctx_.now();
    gateways_.ask(ctx_.chance.below(ctx_.set.gateways), c);
    microseconds patience =
        ctx_.chance.between(microseconds(ctx_.set.node_timeout), microseconds(ctx_.set.node_timeout) * 8);
    if (c.wait > milliseconds{0}) {
        // Some go away before their time.
        const bool in_a_hurry = !insists_ && ctx_.chance.chance(300);
        patience += in_a_hurry ? ctx_.chance.between(microseconds{0}, microseconds(c.wait)) : microseconds(c.wait);
        if (insists_) patience += 24 * microseconds(ctx_.set.node_timeout) + ctx_.set.slow * 8;
    }
    ctx_.events.in(patience,
                   {.kind = event_kind::client_wakes, .who = static_cast<std::uint8_t>(index_), .a = generation_});
}

void sim_client::acquire(resource_set set, milliseconds ttl, sim_nonce previous, hold_number previous_hold) {
    call c{
        .kind = call_kind::acquire, .resources = set, .ttl = ttl, .previous = previous, .previous_hold = previous_hold};
    if (previous == 0) {
        if (ctx_.chance.chance(ctx_.set.waits_per_thousand))
            c.wait = std::chrono::ceil<milliseconds>(ctx_.chance.about(ctx_.set.max_ttl)) + milliseconds{1};
        if (ctx_.chance.chance(ctx_.set.keys_per_thousand)) c.key = {std::uint64_t{index_ + 1} << 32 | ++keys_, 0};
        // What was not answered is asked for once more.
        if (repeats_) c = *repeats_;
        repeats_.reset();
    }
    if (insists_ && ctx_.chance.chance(300))
        c.wait = ctx_.chance.between(milliseconds{1}, milliseconds{ctx_.chance.chance(500) ? 60'000 : 500});
    ask(c);
}

void sim_client::renew() {
    // Longer or shorter than it was.
    const bool other = ctx_.chance.chance(ctx_.set.other_ttl_per_thousand);
    const milliseconds ttl = other ? ctx_.chance.between(ctx_.set.ttl_low, ctx_.set.max_ttl) : lease_.ttl;
    if (ttl < lease_.ttl) ctx_.hit(probe::renewed_for_less);
    ask({.kind = call_kind::renew,
         .resources = lease_.resources,
         .ttl = ttl,
         .nonce = lease_.nonce,
         .hold = some_hold(),
         .token = lease_.token});
}

void sim_client::inspect() {
    ask({.kind = call_kind::inspect,
         .resources = lease_.resources,
         .nonce = lease_.nonce,
         .hold = some_hold(),
         .token = lease_.token});
}

/// One that it has; none is left: the one that it had last.
hold_number sim_client::some_hold() {
    if (lease_.holds.empty()) return lease_.released;
    return lease_.holds[ctx_.chance.below(static_cast<std::uint32_t>(lease_.holds.size()))].number;
}

sim_time sim_client::valid_until(hold_number which) const {
    for (const held::hold& h : lease_.holds) {
        if (h.number == which) return h.until;
    }
    return sim_time{0};
}

void sim_client::prolong(hold_number which, sim_time until) {
    for (held::hold& h : lease_.holds) {
        if (h.number == which) h.until = std::max(h.until, until);
        lease_.until = std::max(lease_.until, h.until);
    }
}

/// Gives back a hold; with the last one the lease is not its any more. Some give back one that they gave back before.
void sim_client::release() {
    call c{.kind = call_kind::release, .resources = lease_.resources, .nonce = lease_.nonce, .token = lease_.token};
    if (lease_.released != 0 && !lease_.holds.empty() && ctx_.chance.chance(200)) {
        ctx_.hit(probe::released_twice);
        c.hold = lease_.released;
        return ask(c);
    }
    if (!lease_.holds.empty()) {
        lease_.released = lease_.holds.back().number;
        lease_.holds.pop_back();
    }
    c.hold = lease_.released;
    lease_.until = lease_.holds.empty() ? ctx_.now() : sim_time{0};
    for (const held::hold& h : lease_.holds)
        lease_.until = std::max(lease_.until, h.until);
    lease_.given_back = lease_.holds.empty();
    check_.lease_valid_only(lease_.nonce, lease_.until);
    ask(c);
}

/// The next holder stands ready: it takes the lease over instead of waiting until it is free.
void sim_client::hand_over() {
    if (me_.owner != 0) return work();  // one more hold may stand on the nodes than it knows of
    lease_.given_back = true;           // its nonce is never renewed again
    if (!ctx_.broken(mutation::hand_over_keeps_old)) check_.lease_valid_only(lease_.nonce, ctx_.now());
    acquire(lease_.resources, ctx_.chance.between(ctx_.set.ttl_low, ctx_.set.max_ttl), lease_.nonce,
            lease_.holds.empty() ? lease_.released : lease_.holds.front().number);
}

void sim_client::linger() {
    sleep(state::holding, ctx_.chance.about(microseconds(lease_.ttl)));
}

void sim_client::walk_away() {
    let_go();
}

/// What a re-entrant owner does: it asks for what it holds.
void sim_client::hold_again() {
    if (me_.owner == 0) return renew();
    call c{.kind = call_kind::acquire, .resources = lease_.resources, .again = true};
    c.ttl = ctx_.chance.between(ctx_.set.ttl_low, ctx_.set.max_ttl);
    if (ctx_.chance.chance(ctx_.set.waits_per_thousand)) c.wait = milliseconds{1 + ctx_.chance.below(50)};
    if (ctx_.chance.chance(ctx_.set.keys_per_thousand)) c.key = {std::uint64_t{index_ + 1} << 32 | ++keys_, 0};
    ask(c);
}

void sim_client::held_again(const call& c, const call_answer& a) {
    if (a.what == outcome::done && a.nonce != lease_.nonce) return acquired(c, a);  // the old one had ended
    if (a.what == outcome::done) {
        const auto same = [&](const held::hold& h) { return h.number == a.hold; };
        if (std::none_of(lease_.holds.begin(), lease_.holds.end(), same)) lease_.holds.push_back({a.hold, {}});
        lease_.ttl = c.ttl;
        prolong(a.hold, ctx_.now() + clock_.real(a.left));
        lease_.sure_since = asked_at_;
        check_.lease_valid(c.resources, a.nonce, lease_.until);
    }
    sleep(state::holding, pause());
}

void sim_client::acquired(const call& c, const call_answer& a) {
    const sim_time until = ctx_.now() + clock_.real(a.left);
    lease_ = {};
    lease_.nonce = a.nonce;
    lease_.token = a.token;
    lease_.resources = c.resources;
    lease_.ttl = c.ttl;
    lease_.write_under_way = a.token == unsure_under_;  // entered again: the same token
    lease_.until = until;
    lease_.holds = {{a.hold, until}};
    lease_.sure_since = asked_at_;
    check_.lease_valid(c.resources, a.nonce, until);
    refused_ = 0;
    ops_left_ = 1 + ctx_.chance.below(7);
    got_it_ = got_it_ || insists_;
    sleep(state::holding, insists_ ? microseconds{0} : pause());
}

void sim_client::answer(const call& c, const call_answer& a) {
    const bool good = a.what == outcome::done;
    const sim_time until = ctx_.now() + clock_.real(a.left);
    switch (c.kind) {
        case call_kind::acquire:
            if (c.again) return held_again(c, a);
            if (c.previous != 0) ctx_.hit(good ? probe::hand_over_ok : probe::hand_over_failed);
            if (c.previous != 0) lease_.nonce = good ? 0 : c.previous;
            if (good) return acquired(c, a);
            if (c.previous != 0) return release();  // what was to be handed over is given back
            // As a waiter does: it comes back just when the holder's lease runs out.
            if (a.what == outcome::locked && a.left > milliseconds{0} && ctx_.chance.chance(500)) {
                lease_ = {};
                return sleep(state::idle, a.left + ctx_.chance.about(milliseconds{1}));
            }
            return let_go();
        case call_kind::renew:
        case call_kind::inspect:
            if (good) {
                if (c.kind == call_kind::renew) lease_.ttl = c.ttl;
                prolong(c.hold, until);
                lease_.sure_since = asked_at_;
                if (!lease_.given_back) check_.lease_valid(c.resources, c.nonce, lease_.until);
            } else if (a.what == outcome::lost && !lease_.given_back && ctx_.now() < valid_until(c.hold)) {
                check_.told_lost(index_, lease_.nonce, lease_.token, lease_.sure_since);
                return let_go();
            } else if ((a.what == outcome::lost || a.what == outcome::too_late) && ctx_.chance.chance(800)) {
                return let_go();
            }
            return sleep(state::holding, pause());
        case call_kind::release:
            if (!lease_.given_back) return a.what == outcome::lost ? let_go() : sleep(state::holding, pause());
            if (insists_) {
                state_ = state::finished;
                return;
            }
            return let_go();
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
    shop_resource_ = sold_here[ctx_.chance.below(count)];
    shop_.ask({index_, generation_, shop_resource_, lease_.token, false, 0, false});
}

void sim_client::shop_answered(const shop::visit& v) {
    if (state_ != state::shopping || v.generation != generation_) return;
    if (!v.accepted) return let_go();  // another holds a higher token
    if (writing_) return sleep(state::holding, pause());
    units_seen_ = v.units;
    sleep(state::shopping, pause());
}

}  // namespace sim
